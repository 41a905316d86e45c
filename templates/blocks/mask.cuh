// Query i sees keys j < limit(i): all of them, or up to its own position when causal (aligned bottom right).
#pragma once

#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

struct Mask {
  int seqlen_k;
  int diagonal;  // seqlen_k - seqlen_q

  // One past the last key that query `row` sees; not positive when it sees none.
#if variant::causal
  __device__ __forceinline__ int limit(int row) const {
    const int own = row + diagonal + 1;
    return own < seqlen_k ? own : seqlen_k;
  }
#else
  __device__ __forceinline__ int limit(int /*row*/) const { return seqlen_k; }
#endif
};

// Sets the scores of unseen keys to -inf, in the accumulators of the 16 rows from `first_row` on and keys from
// `first_key` on. Not needed where the first row sees every key: then so do all.
template <class KeyMask, int columns>
__device__ __forceinline__ void mask_scores(const KeyMask& mask, float (&S)[columns][4], int first_row, int first_key) {
  const int lane = static_cast<int>(lane_index());
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int left = mask.limit(first_row + h * 8 + lane / 4) - first_key - lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      if (n * 8 >= left) S[n][2 * h] = minus_infinity();
      if (n * 8 + 1 >= left) S[n][2 * h + 1] = minus_infinity();
    }
  }
}

// How many blocks of `size` keys, from key 0 on, hold a key below `limit`.
__device__ __forceinline__ int blocks_reaching(int limit, int size) {
  return limit > 0 ? (limit + size - 1) / size : 0;
}
