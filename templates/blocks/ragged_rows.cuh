// The rows of a ragged batch: where tensor maps have its sequences.
//
// A map of such a batch has the dimensions head_dim, seqlen, heads, all rows, which have the stride s of seqlen, and
// one that takes back. Along seqlen every sequence ends at n = 2^30: row r of a sequence of c rows is at n - c + r of
// it and, of all rows, at the one after the sequence. That is n rows too far. The last dimension has the stride 2^34 -
// s, of which n are 2^64 - n * s: addresses wrap around, n rows back. What lies beyond the sequence is outside the map:
// it is read as zeros, and not written.
//
// A base n rows before the tensor would do without that dimension, but where a box lies wholly outside, as a panel
// beyond head_dim does or the keys of a sequence that has none, the copy engine reads at the map's base all the same:
// there has to be memory (seen on H100 and H200).
#pragma once

#include "blocks/box.cuh"
#include "blocks/mask.cuh"
#include "blocks/sequence_rows.cuh"
#include "blocks/tensor_rows.cuh"
#include "blocks/tile_order.cuh"
#include "sequence_end.h"
#include "tensor_params.h"
#include "types.h"

// A tile, with where its sequence's rows are among those of all.
template <class SequenceTile>
struct RaggedTile : SequenceTile {
  SequenceRows queries;
  SequenceRows keys;

  __device__ __forceinline__ void find_rows(const AttuneTensorPrefillParams& params) {
    queries = SequenceRows(params.cu_seqlens_q, this->batch, params.total_q, params.seqlen_q);
    keys = SequenceRows(params.cu_seqlens_k, this->batch, params.total_k, params.seqlen_k);
    queries.keep(params.seqused_q, this->batch);
    keys.keep(params.seqused_k, this->batch);
  }
};

// The same where keys are in pages, in the order of the sequence's table; a batch is ragged, or has as many queries of
// each sequence.
template <class SequenceTile>
struct PagedTile : SequenceTile {
  SequenceRows queries;
  SequenceRows keys;

  __device__ __forceinline__ void find_rows(const AttuneTensorPrefillParams& params) {
    if constexpr (variant::ragged) {
      queries = SequenceRows(params.cu_seqlens_q, this->batch, params.total_q, params.seqlen_q);
      queries.keep(params.seqused_q, this->batch);
    } else {
      queries.first = 0;
      queries.count = params.seqlen_q;
    }
    keys.first = 0;
    keys.count = params.seqlen_k;
    keys.keep(params.seqused_k, this->batch);
  }
};

// Whether the tile's sequence has no queries from this row on.
template <class Tile>
__device__ __forceinline__ bool ends_before(const Tile& tile, int row) {
  return row >= tile.queries.count;
}

// Rows are the queries of one head of a sequence; verbs as in tensor_rows.cuh.
template <class QueryMask>
struct RaggedRows {
  using KeyMask = QueryMask;

  __device__ __forceinline__ static int heads(const AttuneTensorPrefillParams& params) { return params.heads_q; }
  // How many heads a tile of a sequence has that has so many queries.
  __device__ __forceinline__ static int heads_of_tile(const AttuneTensorPrefillParams& /*params*/, int /*queries*/) {
    return 1;
  }
  template <class Tile>
  __device__ __forceinline__ static int kv_head(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
  }
  __device__ __forceinline__ static KeyMask mask_of_longest(const AttuneTensorPrefillParams& params) {
    return KeyMask::of(params, params.seqlen_q, params.seqlen_k);
  }
  template <class Tile>
  __device__ __forceinline__ static KeyMask mask(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return KeyMask::of(params, tile.queries.count, tile.keys.count);
  }
  template <class Tile>
  __device__ __forceinline__ static SequenceBox queries(const Tile& tile, int row) {
    return box(tile.queries, tile.head, row);
  }
  template <class Tile>
  __device__ __forceinline__ static SequenceBox keys(const Tile& tile, int kv_head, int key) {
    return box(tile.keys, kv_head, key);
  }
  template <class Tile>
  __device__ __forceinline__ static LsePlaces lse(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return {params.lse + static_cast<i64>(tile.head) * params.total_q + tile.queries.first, tile.queries.count};
  }

 private:
  // That of a sequence's row, along seqlen and along all rows.
  __device__ __forceinline__ static SequenceBox box(const SequenceRows& sequence, int head, int row) {
    return {ATTUNE_SEQUENCE_END - sequence.count + row, head, sequence.first + sequence.count};
  }
};
