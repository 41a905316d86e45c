// P = 2^(scale * S - m) of one block in two halves: while the exponentials of a lane's first row are under way the
// maximum of its second is found, and those of the second have the sums and P in their shadow. P is packed as A of
// wgmma: two neighbouring accumulator tiles are a fragment. `between` is called before, with half of the first row's
// sum: a branch on it waits for no more exponentials than that.
#pragma once

#include "blocks/expressions.cuh"
#include "blocks/lazy_softmax.cuh"
#include "blocks/tilted_softmax.cuh"
#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

// ptxas moves a wait up to the branch before it, and what no branch needs down behind the wait. This branch, which is
// never taken, needs `sum`: so the exponentials that it adds up are under way before the wait that follows.
template <class Ring>
__device__ __forceinline__ void hold_wait_behind(float sum, const Ring& ring) {
  if (sum < 0.0f) ring.wait();
}

template <Dtype dtype, class Softmax, int columns, class Between>
__device__ __forceinline__ void update(Softmax& softmax, float (&S)[columns][4], u32 (&P)[columns / 2][4],
                                       float scale_log2, const Between& between) {
  if constexpr (Expressions::tilts) {
    update_tilted<dtype>(softmax, S, P, between);
  } else {
    const float before[2] = {softmax.m[0], softmax.m[1]};
    float largest = larger(S[0][0], S[0][1]);
#pragma unroll
    for (int n = 1; n < columns; ++n) largest = larger(larger(largest, S[n][0]), S[n][1]);
    softmax.follow(0, largest, scale_log2);
    largest = S[0][3];
    float sum[2][2] = {}, half = 0.0f;
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      S[n][0] = exp2_approx(S[n][0] * scale_log2 - softmax.m[0]);
      S[n][1] = exp2_approx(S[n][1] * scale_log2 - softmax.m[0]);
      sum[0][0] += S[n][0];
      sum[0][1] += S[n][1];
      if (n == columns / 2) half = sum[0][0] + sum[0][1];
      largest = larger(larger(largest, S[n][2]), S[n][3]);
    }
    softmax.follow(1, largest, scale_log2);
    settle(S);
    between(half);
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      S[n][2] = exp2_approx(S[n][2] * scale_log2 - softmax.m[1]);
      S[n][3] = exp2_approx(S[n][3] * scale_log2 - softmax.m[1]);
      sum[1][0] += S[n][2];
      sum[1][1] += S[n][3];
      P[n / 2][n % 2 * 2] = pack<dtype>(S[n][0], S[n][1]);
      P[n / 2][n % 2 * 2 + 1] = pack<dtype>(S[n][2], S[n][3]);
    }
    softmax.correct(before);
    for (int h = 0; h < 2; ++h) softmax.l[h] += sum[h][0] + sum[h][1];
  }
}

// Whether the last update's block had no weight but 0, and S may hold scores in place of weights. P holds zeros then.
template <class Softmax>
__device__ __forceinline__ bool had_no_weight(const Softmax& softmax) {
  if constexpr (Expressions::tilts) {
    return softmax.weightless;
  } else {
    return false;
  }
}

// The same of all four warps of the warpgroup: the product of that block's weights would add nothing to O.
template <class Softmax>
__device__ __forceinline__ bool adds_nothing(const Softmax& softmax) {
  if constexpr (Expressions::tilts) {
    return softmax.adds_nothing;
  } else {
    return false;
  }
}
