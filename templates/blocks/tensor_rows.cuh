// Where the rows of a tile lie in the tensors that maps describe. Each of these types says which heads have tiles of
// their own, what a row sees, in which boxes Q, O, K and V begin, and where LSE goes.
#pragma once

#include "blocks/box.cuh"
#include "blocks/lse_places.cuh"
#include "blocks/mask.cuh"
#include "tensor_params.h"
#include "types.h"

// Rows are the queries of one head.
template <class QueryMask>
struct DenseRows {
  using KeyMask = QueryMask;

  __device__ __forceinline__ static int heads(const AttuneTensorPrefillParams& params) { return params.heads_q; }
  template <class Tile>
  __device__ __forceinline__ static int kv_head(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
  }
  __device__ __forceinline__ static KeyMask mask_of_longest(const AttuneTensorPrefillParams& params) {
    return KeyMask::of(params, params.seqlen_q, params.seqlen_k);
  }
  template <class Tile>
  __device__ __forceinline__ static KeyMask mask(const AttuneTensorPrefillParams& params, const Tile& /*tile*/) {
    return mask_of_longest(params);
  }
  template <class Tile>
  __device__ __forceinline__ static Box queries(const Tile& tile, int row) {
    return {row, tile.head, tile.batch};
  }
  template <class Tile>
  __device__ __forceinline__ static Box keys(const Tile& tile, int kv_head, int key) {
    return {key, kv_head, tile.batch};
  }
  template <class Tile>
  __device__ __forceinline__ static LsePlaces lse(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return {params.lse + (static_cast<i64>(tile.batch) * params.heads_q + tile.head) * params.seqlen_q,
            params.seqlen_q};
  }
};

// Row q * ratio + h is query q of the h-th of the `ratio` heads that share keys and values, which are read once for
// them. In a map of head_dim, heads, seqlen, batch they are consecutive. A tile's head is one of K and V.
template <class QueryMask, int ratio>
struct PackedRows {
  using KeyMask = PackedMask<QueryMask, ratio>;

  struct Places {
    float* first;  // of the first head
    int seqlen_q;
    int rows;

    __device__ __forceinline__ bool has(int row) const { return row < rows; }
    __device__ __forceinline__ float* at(int row) const {
      return first + static_cast<i64>(KeyMask::head(row)) * seqlen_q + KeyMask::query(row);
    }
  };

  __device__ __forceinline__ static int heads(const AttuneTensorPrefillParams& params) {
    return params.heads_q / ratio;
  }
  template <class Tile>
  __device__ __forceinline__ static int kv_head(const AttuneTensorPrefillParams& /*params*/, const Tile& tile) {
    return tile.head;
  }
  __device__ __forceinline__ static KeyMask mask_of_longest(const AttuneTensorPrefillParams& params) {
    return KeyMask::of(params, params.seqlen_q, params.seqlen_k);
  }
  template <class Tile>
  __device__ __forceinline__ static KeyMask mask(const AttuneTensorPrefillParams& params, const Tile& /*tile*/) {
    return mask_of_longest(params);
  }
  template <class Tile>
  __device__ __forceinline__ static Box queries(const Tile& tile, int row) {
    return {tile.head * ratio, KeyMask::query(row), tile.batch};
  }
  template <class Tile>
  __device__ __forceinline__ static Box keys(const Tile& tile, int kv_head, int key) {
    return {key, kv_head, tile.batch};
  }
  template <class Tile>
  __device__ __forceinline__ static Places lse(const AttuneTensorPrefillParams& params, const Tile& tile) {
    const int head = tile.head * ratio;
    return {params.lse + (static_cast<i64>(tile.batch) * params.heads_q + head) * params.seqlen_q, params.seqlen_q,
            params.seqlen_q * ratio};
  }
};
