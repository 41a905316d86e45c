// Where scores are finished: what happens to q.k between its product and the softmax, in every family.
#pragma once

#include "blocks/mask.cuh"
#include "blocks/softcap.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// The corner of a block of scores: accumulators of the rows from `row` on and of the keys from `key` on.
struct ScoreCorner {
  int row;
  int key;
};

// Sets the scores of keys that a row does not see to -inf, in the accumulators of 16 rows.
template <class KeyMask, int columns>
__device__ __forceinline__ void mask_scores(const KeyMask& mask, float (&S)[columns][4], const ScoreCorner& at) {
  const int lane = static_cast<int>(lane_index());
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const auto seen = mask.seen(at.row + h * 8 + lane / 4).from(at.key + lane % 4 * 2);
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (!seen.has(n * 8 + e)) S[n][2 * h + e] = minus_infinity();
      }
    }
  }
}

// Finishes the scores of 16 rows: the cap, then the mask.
template <class KeyMask, int columns>
__device__ __forceinline__ void finish_scores(float (&S)[columns][4], const KeyMask& mask, const ScoreCorner& at,
                                              float cap_scale) {
  if constexpr (variant::softcap) cap_scores(S, cap_scale);
  if (!mask.sees_all(at.row, 16, at.key, columns * 8)) mask_scores(mask, S, at);
}

// The same for several 16 rows, one after the other.
template <class KeyMask, int row_tiles, int columns>
__device__ __forceinline__ void finish_scores(float (&S)[row_tiles][columns][4], const KeyMask& mask,
                                              const ScoreCorner& at, float cap_scale) {
  if constexpr (variant::softcap) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) cap_scores(S[i], cap_scale);
  }
  if (mask.sees_all(at.row, row_tiles * 16, at.key, columns * 8)) return;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) mask_scores(mask, S[i], {at.row + i * 16, at.key});
}
