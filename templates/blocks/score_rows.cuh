// Where the rows of a tile stand that tensor maps bring, for expressions; and which of its blocks a mask leaves.
#pragma once

#include "blocks/score_place.cuh"
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

// Takes from a tile's blocks those before its first and behind its last live one; one stays, as tiles have some.
template <class Live, class Tile>
__device__ __forceinline__ void keep_live_blocks(Live& live, Tile& tile) {
  tile.blocks = live.last(tile.blocks - 1, tile.first_block) + 1;
  tile.first_block = live.first(tile.first_block, tile.blocks - 1);
}
