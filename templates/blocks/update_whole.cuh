// P = 2^(scale * S - m) of one block, its exponentials all at once; `between` is called before P is written. ptxas
// hoists a wait there in front of them: for kernels whose other warpgroups have the products to go on with. P is packed
// as A operands of wgmma: two neighbouring accumulator tiles are, lane for lane, one fragment.
#pragma once

#include "blocks/lazy_softmax.cuh"
#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

template <Dtype dtype, class Softmax, int columns, class Between>
__device__ __forceinline__ void update(Softmax& softmax, float (&S)[columns][4], u32 (&P)[columns / 2][4],
                                       float scale_log2, const Between& between) {
  const float before[2] = {softmax.m[0], softmax.m[1]};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = larger(S[0][2 * h], S[0][2 * h + 1]);
#pragma unroll
    for (int n = 1; n < columns; ++n) largest = larger(largest, larger(S[n][2 * h], S[n][2 * h + 1]));
    softmax.follow(h, largest, scale_log2);
  }
  softmax.correct(before);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float shift = softmax.m[h];
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
    softmax.l[h] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  settle(S);
  between(0.0f);
#pragma unroll
  for (int n = 0; n < columns; ++n) {
    P[n / 2][n % 2 * 2] = pack<dtype>(S[n][0], S[n][1]);
    P[n / 2][n % 2 * 2 + 1] = pack<dtype>(S[n][2], S[n][3]);
  }
}
