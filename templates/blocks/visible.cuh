// Which keys a query of a sequence sees: all, a window around its own position, or those up to it.
#pragma once

#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Query i stands at i + seqlen_k - seqlen_q (aligned bottom right) and sees the keys from first(i) on, below limit(i).
struct Visible {
  int seqlen_q;
  int seqlen_k;
  int begin;  // keys before it do not exist
  int left;   // keys before its own; -1: all
  int right;  // keys behind it; -1: all

  __device__ __forceinline__ int position(int query) const { return query + seqlen_k - seqlen_q; }

  __device__ __forceinline__ int first(int query) const {
    if (left < 0) return begin;
    const int key = position(query) - left;
    return key > begin ? key : begin;
  }

  __device__ __forceinline__ int limit(int query) const {
    if (right < 0) return seqlen_k;
    const int key = position(query) + right + 1;
    return key < seqlen_k ? key : seqlen_k;
  }

  // The blocks of `size` keys that some query sees: from first_block on, below end_block.
  __device__ __forceinline__ int first_block(int size) const { return first(0) / size; }
  __device__ __forceinline__ int end_block(int size) const {
    const int keys = limit(seqlen_q - 1);
    return keys > 0 ? (keys + size - 1) / size : 0;
  }

  // Sets the scores of unseen keys to -inf: accumulators of the rows from `first_row` on, `rows_per_query` of them for
  // a query, and of the keys from `first_key` on. Where every row sees every key, nothing is done.
  template <int row_tiles, int columns>
  __device__ __forceinline__ void apply(float (&S)[row_tiles][columns][4], int first_row, int rows_per_query,
                                        int first_key) const {
    if (first_key >= first(seqlen_q - 1) && first_key + columns * 8 <= limit(0)) return;
    const int lane = static_cast<int>(lane_index());
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int query = (first_row + i * 16 + h * 8 + lane / 4) / rows_per_query;
        const int before = first(query) - first_key - lane % 4 * 2;
        const int behind = limit(query) - first_key - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < columns; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (n * 8 + e < before || n * 8 + e >= behind) S[i][n][2 * h + e] = minus_infinity();
          }
        }
      }
    }
  }
};
