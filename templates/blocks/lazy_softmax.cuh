// Online softmax (arXiv 1805.02867) of 16 rows a warp, in base 2, whose rescaling waits until it matters.
// Accumulators are in wgmma's layout: a lane holds two rows (g and g + 8); the four lanes of a quad share them.
#pragma once

#include "ptx/math.cuh"
#include "ptx/shuffle.cuh"
#include "types.h"

// Exponentials are taken relative to `m`, which follows the maximum only when that has grown by more than `bound` (in
// log2): until then they exceed 1, by 2^bound at most, which float sums and 16-bit P hold with the same relative error.
template <int bound>
struct LazySoftmax {
  float m[2];           // what exponents are relative to, scaled; equal in a quad
  float l[2];           // running sum of exponentials, this lane's columns only
  float correction[2];  // what O is to be multiplied by where needs_rescale
  bool needs_rescale;   // the same in a warp

  __device__ __forceinline__ void restart() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m[h] = minus_infinity();
      l[h] = 0.0f;
    }
  }

  // Takes in one block of scores: S becomes P = 2^(scale * S - m).
  template <int columns>
  __device__ __forceinline__ void update(float (&S)[columns][4], float scale_log2) {
    float top[2];
    bool grew = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = larger(S[0][2 * h], S[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < columns; ++n) largest = larger(largest, larger(S[n][2 * h], S[n][2 * h + 1]));
      largest = larger(largest, shuffle_xor(largest, 1));
      largest = larger(largest, shuffle_xor(largest, 2));
      top[h] = largest * scale_log2;
      grew = grew || top[h] > m[h] + bound;
    }
    needs_rescale = any_lane(grew);
    if (needs_rescale) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float next = larger(m[h], top[h]);
        correction[h] = exp2_approx(m[h] - finite(next));
        l[h] *= correction[h];
        m[h] = next;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float shift = finite(m[h]);
      float sum[4] = {};
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = S[n][2 * h + e];
          score = exp2_approx(score * scale_log2 - shift);
          sum[n % 2 * 2 + e] += score;
        }
      }
      l[h] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
  }

  // Brings O to the maximum of the last update.
  template <int columns>
  __device__ __forceinline__ void rescale(float (&O)[columns][4]) const {
    if (!needs_rescale) return;
#pragma unroll
    for (int d = 0; d < columns; ++d) {
#pragma unroll
      for (int e = 0; e < 4; ++e) O[d][e] *= correction[e / 2];
    }
  }

  // After the last block: 1 / l (0 for a row that saw no key) and the natural-log LSE of each row.
  __device__ __forceinline__ void finish(float (&inverse)[2], float (&lse)[1][2]) const {
    constexpr float ln_2 = 0.693147180559945f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = l[h];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      const bool empty = sum == 0.0f;
      inverse[h] = empty ? 0.0f : 1.0f / sum;
      lse[0][h] = empty ? minus_infinity() : (m[h] + log2_approx(sum)) * ln_2;
    }
  }

 private:
  // A row that has seen no key yet keeps -inf; relative to 0 its exponentials are 0 and no NaN.
  __device__ __forceinline__ static float finite(float x) { return x == minus_infinity() ? 0.0f : x; }
};

// P as A operands of wgmma: two neighbouring accumulator tiles are, lane for lane, one fragment.
template <Dtype dtype, int columns>
__device__ __forceinline__ void pack_fragments(u32 (&P)[columns / 2][4], const float (&S)[columns][4]) {
#pragma unroll
  for (int k = 0; k < columns / 2; ++k) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float(&pair)[4] = S[2 * k + w / 2];
      P[k][w] = pack<dtype>(pair[w % 2 * 2], pair[w % 2 * 2 + 1]);
    }
  }
}
