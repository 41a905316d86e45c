// A query sees the keys around its own position. Query i stands at i + seqlen_k - seqlen_q (aligned bottom right).
#pragma once

#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

struct Window {
  int seqlen_k;
  int diagonal;  // seqlen_k - seqlen_q
  int left;      // keys that a query sees before its own position, ...
  int right;     // ... and behind it

  // The first key that query `row` sees, ...
  __device__ __forceinline__ int first(int row) const {
    const int key = row + diagonal - left;
    return key > 0 ? key : 0;
  }

  // ... and one past the last; it sees none where that is not behind the first.
  __device__ __forceinline__ int limit(int row) const {
    const int key = row + diagonal + right + 1;
    return key < seqlen_k ? key : seqlen_k;
  }

  // Of blocks of `size` keys the first that the queries from `row` on see. It reaches no further than limit() of a row
  // that exists: `row` itself is in front of both, or key 0 is where both begin.
  __device__ __forceinline__ int first_block(int row, int size) const { return first(row) / size; }
};

// Sets the scores of unseen keys to -inf, in the accumulators of the 16 rows from `first_row` on and keys from
// `first_key` on.
template <int columns>
__device__ __forceinline__ void mask_window(const Window& window, float (&S)[columns][4], int first_row,
                                            int first_key) {
  const int lane = static_cast<int>(lane_index());
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + lane / 4;
    const int lane_key = first_key + lane % 4 * 2;
    const int before = window.first(row) - lane_key;
    const int seen = window.limit(row) - lane_key;
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (n * 8 + e < before || n * 8 + e >= seen) S[n][2 * h + e] = minus_infinity();
      }
    }
  }
}
