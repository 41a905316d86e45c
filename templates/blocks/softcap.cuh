// A soft cap on scores, softcap * tanh(score / softcap), whose factor softcap the softmax's scale has taken in.
#pragma once

#include "ptx/math.cuh"
#include "ptx/reciprocal.cuh"
#include "types.h"

// tanh(ln(2) / 2 * y) = 1 - 2 / (2^y + 1), which loses the small ones to cancellation: they have the first terms of its
// series. The relative error is at most 2^-20, as an LSE of scores far below the cap asks for; tanh.approx has 2^-11.
__device__ __forceinline__ float tanh_base_2(float y) {
  constexpr float half_ln_2 = 0.346573590f;
  const float x = y * half_ln_2;
  const float square = x * x;
  const float series = x + x * square * (-0.333333333f + square * (0.133333333f + square * -0.0539682540f));
  const float quotient = 1.0f - 2.0f * reciprocal_approx(exp2_approx(y) + 1.0f);
  return square < 0.0625f ? series : quotient;
}

// Scores become tanh(ln(2) / 2 * scale * score).
template <int columns>
__device__ __forceinline__ void cap_scores(float (&S)[columns][4], float scale) {
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) S[n][e] = tanh_base_2(S[n][e] * scale);
  }
}
