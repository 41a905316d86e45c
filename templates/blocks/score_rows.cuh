// Where the rows of a tile stand that tensor maps bring, for expressions; and which blocks a mask leaves it.
#pragma once

#include "blocks/live_blocks.cuh"
#include "blocks/score_place.cuh"
#include "blocks/told_blocks.cuh"
#include "tensor_params.h"
#include "types.h"

// `Rows`: one of blocks/tensor_rows.cuh and blocks/ragged_rows.cuh.
template <class Rows, class Tile>
__device__ __forceinline__ ScoreRows score_rows(const AttuneTensorPrefillParams& params, const Tile& tile) {
  const int kv_head = Rows::kv_head(params, tile);
  if constexpr (variant::paged && variant::pack_gqa) {
    return {tile.batch,         tile.head * variant::gqa_ratio,       kv_head,
            variant::gqa_ratio, tile.keys.count - tile.queries.count, 0};
  } else if constexpr (variant::ragged || variant::paged) {
    return {tile.batch, tile.head, kv_head, 1, tile.keys.count - tile.queries.count, 0};
  } else if constexpr (variant::pack_gqa) {
    return {tile.batch,         tile.head * variant::gqa_ratio,    kv_head,
            variant::gqa_ratio, params.seqlen_k - params.seqlen_q, 0};
  } else {
    return {tile.batch, tile.head, kv_head, 1, params.seqlen_k - params.seqlen_q, 0};
  }
}

template <class Rows, int B_r, int B_c, class KernelParams, class Tile>
__device__ __forceinline__ Select<Expressions::told, ToldBlocks<B_r>, LiveBlocks<B_r, B_c>> live_blocks(
    const KernelParams& params, const Tile& tile) {
  return {params, score_rows<Rows>(params, tile), tile.head, tile.first_row};
}

// Takes from a tile's blocks those before its first and behind its last live one; one stays, as tiles have some.
template <class Rows, int B_r, int B_c, class KernelParams, class Tile>
__device__ __forceinline__ void keep_live_blocks(const KernelParams& params, Tile& tile) {
  const auto live = live_blocks<Rows, B_r, B_c>(params, tile);
  tile.blocks = live.last(tile.blocks - 1, tile.first_block) + 1;
  tile.first_block = live.first(tile.first_block, tile.blocks - 1);
}
