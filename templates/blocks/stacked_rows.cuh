// The rows of a ragged batch some of whose sequences have few queries: one tile has those of all heads that share keys.
//
// A sequence of up to stack_rows queries, as many as a warpgroup has rows for each of these heads, is stacked: row h *
// stack_rows + q of its only tile is query q of the h-th head. A box with a dimension of heads brings them so, and what
// it has beyond a sequence's end are zeros, as ever. So K and V are read, and multiplied, once and not once a head.
#pragma once

#include "blocks/ragged_rows.cuh"
#include "stacked_params.h"
#include "tensor_params.h"
#include "types.h"

// A mask for tiles that may be stacked.
template <class QueryMask>
struct StackedMask : QueryMask {
  int query_bits;  // of a row's number: all in a tile that is not stacked

  template <class Params>
  __device__ __forceinline__ static StackedMask of(const Params& params, int seqlen_q, int seqlen_k) {
    return {QueryMask::of(params, seqlen_q, seqlen_k), seqlen_q <= params.stack_rows ? params.stack_rows - 1 : -1};
  }

  __device__ __forceinline__ int query(int row) const { return row & query_bits; }
  __device__ __forceinline__ int first(int row) const { return QueryMask::first(query(row)); }
  __device__ __forceinline__ int limit(int row) const { return QueryMask::limit(query(row)); }
  __device__ __forceinline__ auto seen(int row) const { return QueryMask::seen(query(row)); }
  __device__ __forceinline__ bool sees_all(int first_row, int rows, int first_key, int keys) const {
    return QueryMask::sees_all(query(first_row), rows, first_key, keys);
  }
};

// Whether a tile has the rows of several heads.
template <class Tile>
__device__ __forceinline__ bool is_stacked(const AttuneTensorPrefillParams& params, const Tile& tile) {
  return tile.queries.count <= params.stack_rows;
}

// The maps by which its Q comes, how many bytes, and its O goes; verbs as in sole_maps.cuh.
struct StackMaps {
  template <class QTile, class Tile>
  __device__ __forceinline__ static u32 query_bytes(const AttuneStackedPrefillParams& params, const Tile& tile) {
    constexpr u32 rows = 64;  // of a warpgroup
    return is_stacked(params, tile) ? QTile::bytes / QTile::row_count * rows : QTile::bytes;
  }
  template <class Tile>
  __device__ __forceinline__ static const AttuneTensorMap& queries(const AttuneStackedPrefillParams& params,
                                                                   const Tile& tile) {
    return is_stacked(params, tile) ? params.q_stacks : params.q;
  }
  template <class Tile>
  __device__ __forceinline__ static const AttuneTensorMap& outputs(const AttuneStackedPrefillParams& params,
                                                                   const Tile& tile) {
    return is_stacked(params, tile) ? params.o_stacks : params.o;
  }
};

// Verbs as in tensor_rows.cuh.
template <class QueryMask>
struct StackedRows : RaggedRows<StackedMask<QueryMask>> {
  using KeyMask = StackedMask<QueryMask>;

  struct Places {
    float* first;  // of the first head
    int total_q;
    int queries;
    int heads;
    int query_bits;
    int stack_shift;

    __device__ __forceinline__ int query(int row) const { return row & query_bits; }
    __device__ __forceinline__ int head(int row) const { return (row & ~query_bits) >> stack_shift; }
    __device__ __forceinline__ bool has(int row) const { return query(row) < queries && head(row) < heads; }
    __device__ __forceinline__ float* at(int row) const {
      return first + static_cast<i64>(head(row)) * total_q + query(row);
    }
  };

  // How many heads a tile of a sequence has that has so many queries.
  __device__ __forceinline__ static int heads_of_tile(const AttuneTensorPrefillParams& params, int queries) {
    return queries <= params.stack_rows ? params.gqa_ratio : 1;
  }
  template <class Tile>
  __device__ __forceinline__ static Places lse(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return {params.lse + static_cast<i64>(tile.head) * params.total_q + tile.queries.first,
            params.total_q,
            tile.queries.count,
            params.gqa_ratio,
            KeyMask::of(params, tile.queries.count, tile.keys.count).query_bits,
            params.stack_shift};
  }
};
