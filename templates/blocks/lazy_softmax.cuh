// Online softmax (arXiv 1805.02867) of 16 rows a warp, in base 2, whose rescaling waits until it matters.
// Accumulators are in wgmma's layout: a lane holds two rows (g and g + 8); the four lanes of a quad share them.
#pragma once

#include "ptx/math.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/wgmma.cuh"
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

  // Takes in one block of scores: S becomes 2^(scale * S - m).
  template <int columns>
  __device__ __forceinline__ void update(float (&S)[columns][4], float scale_log2) {
    const float before[2] = {m[0], m[1]};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = larger(S[0][2 * h], S[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < columns; ++n) largest = larger(largest, larger(S[n][2 * h], S[n][2 * h + 1]));
      m[h] = follow(m[h], largest, scale_log2);
    }
    correct(before);
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

  // The same in two halves, P packed: while the exponentials of the first row are under way the maximum of the second
  // is found; `between` is called; then come those of the second row, with sums and P in their shadow.
  template <Dtype dtype, int columns, class Between>
  __device__ __forceinline__ void update_in_halves(float (&S)[columns][4], u32 (&P)[columns / 2][4], float scale_log2,
                                                   const Between& between) {
    const float before[2] = {m[0], m[1]};
    float largest = larger(S[0][0], S[0][1]);
#pragma unroll
    for (int n = 1; n < columns; ++n) largest = larger(larger(largest, S[n][0]), S[n][1]);
    m[0] = follow(m[0], largest, scale_log2);
    float shift = finite(m[0]);
    largest = larger(S[0][2], S[0][3]);
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      S[n][0] = exp2_approx(S[n][0] * scale_log2 - shift);
      S[n][1] = exp2_approx(S[n][1] * scale_log2 - shift);
      if (n > 0) largest = larger(larger(largest, S[n][2]), S[n][3]);
    }
    m[1] = follow(m[1], largest, scale_log2);
    shift = finite(m[1]);
    settle(S);
    between();
    float sum[2][2] = {};
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      S[n][2] = exp2_approx(S[n][2] * scale_log2 - shift);
      S[n][3] = exp2_approx(S[n][3] * scale_log2 - shift);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e / 2][e % 2] += S[n][e];
      P[n / 2][n % 2 * 2] = pack<dtype>(S[n][0], S[n][1]);
      P[n / 2][n % 2 * 2 + 1] = pack<dtype>(S[n][2], S[n][3]);
    }
    correct(before);
#pragma unroll
    for (int h = 0; h < 2; ++h) l[h] += sum[h][0] + sum[h][1];
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
  // Where exponents are relative to, given the largest score of this lane's columns.
  __device__ __forceinline__ static float follow(float m, float largest, float scale_log2) {
    largest = larger(largest, shuffle_xor(largest, 1));
    largest = larger(largest, shuffle_xor(largest, 2));
    const float top = largest * scale_log2;
    return top > m + bound ? top : m;
  }

  // Brings l to the new m, and keeps what O needs.
  __device__ __forceinline__ void correct(const float (&before)[2]) {
    needs_rescale = any_lane(m[0] != before[0] || m[1] != before[1]);
    if (!needs_rescale) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      correction[h] = exp2_approx(before[h] - finite(m[h]));
      l[h] *= correction[h];
    }
  }

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
