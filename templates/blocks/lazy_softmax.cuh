// Online softmax (arXiv 1805.02867) of 16 rows a warp, in base 2, whose rescaling waits until it matters.
// Accumulators are in wgmma's layout: a lane holds two rows (g and g + 8); the four lanes of a quad share them.
#pragma once

#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Exponentials are taken relative to `m`, which follows the maximum only when that has grown by more than `bound` (in
// log2): until then they exceed 1, by 2^bound at most, which float sums and 16-bit P hold with the same relative error.
// With a bound of 0 the largest weight of a row is exactly 1 in P, and so the one that matters most is never rounded.
// A warp votes on whether O is multiplied at all, for both rows of a lane at once or (rows_per_vote 1) for each.
template <int bound, int rows_per_vote>
struct LazySoftmax {
  float m[2];                             // what exponents are relative to, scaled; equal in a quad
  float l[2];                             // running sum of exponentials, this lane's columns only
  float correction[2];                    // what O is to be multiplied by where needs_rescale
  bool needs_rescale[2 / rows_per_vote];  // of each vote, the same in a warp

  // The lowest number, and not minus infinity, so that what is relative to it is a number too.
  __device__ __forceinline__ void restart() {
    m[0] = m[1] = -3.40282347e38f;
    l[0] = l[1] = 0.0f;
  }

  // Brings O to the maximum of the last update.
  template <int columns>
  __device__ __forceinline__ void rescale(float (&O)[columns][4]) const {
#pragma unroll
    for (int first = 0; first < 2; first += rows_per_vote) {
      if (!needs_rescale[first / rows_per_vote]) continue;
#pragma unroll
      for (int d = 0; d < columns; ++d) {
#pragma unroll
        for (int e = 2 * first; e < 2 * (first + rows_per_vote); ++e) O[d][e] *= correction[e / 2];
      }
    }
  }

  // After the last block: 1 / l and the natural-log LSE of each row; 0 and -inf of one that saw no key.
  __device__ __forceinline__ void finish(float (&inverse)[2], float (&lse)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = l[h] + shuffle_xor(l[h], 1);
      sum += shuffle_xor(sum, 2);
      const float log2_sum = log2_approx(sum);
      inverse[h] = sum == 0.0f ? 0.0f : exp2_approx(-log2_sum);
      lse[h] = (m[h] + log2_sum) * 0.693147180559945f;  // ln 2
    }
  }

  // Of row h: given the largest score of this lane's columns, what exponents are relative to from now on.
  __device__ __forceinline__ void follow(int h, float largest, float scale_log2) {
    largest = larger(largest, shuffle_xor(largest, 1));
    largest = larger(largest, shuffle_xor(largest, 2));
    const float top = largest * scale_log2;
    if constexpr (variant::rescale_bound == 0) {
      m[h] = larger(m[h], top);
    } else {
      if (top > m[h] + bound) m[h] = top;
    }
  }

  // Brings l to the new m, and keeps what O needs.
  __device__ __forceinline__ void correct(const float (&before)[2]) {
#pragma unroll
    for (int first = 0; first < 2; first += rows_per_vote) {
      const int last = first + rows_per_vote - 1;
      needs_rescale[first / rows_per_vote] = any_lane(m[first] != before[first] || m[last] != before[last]);
      // The factor of one row alone is not worth a branch.
      if (rows_per_vote == 2 && !needs_rescale[first / rows_per_vote]) continue;
      for (int h = first; h <= last; ++h) {
        correction[h] = exp2_approx(before[h] - m[h]);
        l[h] *= correction[h];
      }
    }
  }
};
