// Which pairs of a query and a key count: query i stands at i + seqlen_k - seqlen_q (aligned bottom right), and sees
// all keys, or those up to its own position, or those in a window around it.
#pragma once

#include "backward_params.h"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

template <bool causal, bool window>
struct PairMask {
  // Whether a query's keys have a beginning besides the first of all, and whether a key's queries have one.
  static constexpr bool begins_keys = window;
  static constexpr bool begins_queries = window || causal;

  int queries;
  int keys;
  int diagonal;  // keys - queries
  int left;      // keys that a query sees before its own position, ...
  int right;     // ... and behind it

  template <class Sequence>
  __device__ __forceinline__ PairMask(const AttuneBackwardParams& params, const Sequence& sequence)
      : queries(sequence.queries.count),
        keys(sequence.keys.count),
        diagonal(keys - queries),
        left(params.window_left),
        right(window ? params.window_right : 0) {}

  // The first key that a query sees, ...
  __device__ __forceinline__ int first_key(int query) const {
    if constexpr (window) {
      return larger_of(query + diagonal - left, 0);
    } else {
      return 0;
    }
  }

  // ... and one past the last; it sees none where that is not behind the first.
  __device__ __forceinline__ int key_limit(int query) const {
    if constexpr (window || causal) {
      return smaller_of(query + diagonal + right + 1, keys);
    } else {
      return keys;
    }
  }

  // The first query that sees a key, if any does, ...
  __device__ __forceinline__ int first_query(int key) const {
    if constexpr (window || causal) {
      return larger_of(key - diagonal - right, 0);
    } else {
      return 0;
    }
  }

  // ... and one past the last.
  __device__ __forceinline__ int query_limit(int key) const {
    if constexpr (window) {
      return smaller_of(key - diagonal + left + 1, queries);
    } else {
      return queries;
    }
  }

  // Whether every one of these queries sees every one of these keys.
  __device__ __forceinline__ bool is_full(int query, int query_count, int key, int key_count) const {
    // What an expression makes of queries that do not exist may be anything.
    if constexpr (variant::score) {
      if (query + query_count > queries) return false;
    }
    return first_key(query + query_count - 1) <= key && key_limit(query) >= key + key_count;
  }

 private:
  __device__ __forceinline__ static int larger_of(int x, int y) { return x > y ? x : y; }
  __device__ __forceinline__ static int smaller_of(int x, int y) { return x < y ? x : y; }
};

// Sets the scores of pairs that do not count to -inf, in accumulators of 16 rows and 8 columns each: rows are queries
// and columns keys, or where `transposed` the other way round. A row sees columns in a row, so that each element costs
// one comparison for each end.
template <bool transposed, class Mask, int row_tiles, int columns>
__device__ __forceinline__ void mask_pairs(const Mask& mask, float (&S)[row_tiles][columns][4], int first_row,
                                           int first_column) {
  constexpr bool begins = transposed ? Mask::begins_queries : Mask::begins_keys;
  const int lane = static_cast<int>(lane_index());
  const int lane_column = first_column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + i * 16 + h * 8 + lane / 4;
      const int first = (transposed ? mask.first_query(row) : mask.first_key(row)) - lane_column;
      const int end = transposed ? (row < mask.keys ? mask.query_limit(row) : 0) : mask.key_limit(row);
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool counts = (!begins || n * 8 + e >= first) && n * 8 + e < end - lane_column;
          if (!counts) S[i][n][2 * h + e] = minus_infinity();
        }
      }
    }
  }
}
