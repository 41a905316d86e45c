// From scores S = Q K^T and dP = dO V^T to P and dS.
#pragma once

#include "ptx/math.cuh"
#include "types.h"

// What a row's softmax left: LSE in base 2, and D.
struct RowStatistics {
  float lse;
  float D;
};

// Of one pair: S becomes P = 2^(scale * S - LSE), dP becomes dS = P * (dP - D), by the scores before their scale.
// Capped scores are tanh(x), with the slope 1 - tanh^2 (blocks/softcap.cuh); those
// that are masked are -inf, and theirs is 0.
template <bool capped>
__device__ __forceinline__ void score_gradient(float& S, float& dP, const RowStatistics& row, float scale_log2) {
  const float P = exp2_approx(S * scale_log2 - row.lse);
  dP = P * (dP - row.D);
  if constexpr (capped) dP *= larger(1.0f - S * S, 0.0f);
  S = P;
}
