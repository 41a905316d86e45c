// From scores S = Q K^T and dP = dO V^T to P and dS.
#pragma once

#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
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

// What a lane needs of its columns' statistics, for accumulators whose columns are queries: of each 8 two neighbours.
template <int columns, class Visit>
__device__ __forceinline__ void for_each_pair(u32 statistics, const Visit& visit) {
  const u32 lane_statistics = statistics + lane_index() % 4 * sizeof(Float4);
#pragma unroll
  for (u32 n = 0; n < columns; ++n) {
    const Float4 two = load_shared_floats(lane_statistics + n * 4 * sizeof(Float4));
#pragma unroll
    for (u32 e = 0; e < 4; ++e) visit(n, e, RowStatistics{two.value[e % 2 * 2], two.value[e % 2 * 2 + 1]});
  }
}

// S becomes P, ...
template <int columns>
__device__ __forceinline__ void scores_to_weights(float (&S)[columns][4], u32 statistics, float scale_log2) {
  for_each_pair<columns>(statistics, [&](u32 n, u32 e, const RowStatistics& row) {
    S[n][e] = exp2_approx(S[n][e] * scale_log2 - row.lse);
  });
}

// ... and dP becomes dS, ...
template <int columns>
__device__ __forceinline__ void weights_to_gradients(const float (&P)[columns][4], float (&dP)[columns][4],
                                                     u32 statistics) {
  for_each_pair<columns>(statistics,
                         [&](u32 n, u32 e, const RowStatistics& row) { dP[n][e] = P[n][e] * (dP[n][e] - row.D); });
}

// ... or both, of capped scores.
template <int columns>
__device__ __forceinline__ void capped_gradients(float (&S)[columns][4], float (&dP)[columns][4], u32 statistics,
                                                 float scale_log2) {
  for_each_pair<columns>(statistics, [&](u32 n, u32 e, const RowStatistics& row) {
    score_gradient<true>(S[n][e], dP[n][e], row, scale_log2);
  });
}
