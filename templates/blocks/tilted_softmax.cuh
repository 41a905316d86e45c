// The softmax of scores to which an expression adds the same for each key of a row, as ALiBi's does (arXiv 2108.12409).
//
// What a block's first key of a lane adds is one number for each row, which the maximum takes in; and what the keys
// behind it add more is a multiple of what one does. So a score costs one operation, with a constant in the
// instruction: it is added to the product before its scale, which the exponential's argument has anyway. These
// operations stand where they wait for nobody, behind one maximum and the next, or one exponential and the next.
#pragma once

#include "blocks/expressions.cuh"
#include "blocks/lazy_softmax.cuh"
#include "blocks/score_place.cuh"
#include "blocks/scores.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

[[maybe_unused]] constexpr u32 first_vote = 8;  // barriers of the warpgroups' votes

template <int bound, int rows_per_vote>
struct TiltedSoftmax : LazySoftmax<bound, rows_per_vote> {
  // 2 to the power of -150 rounds to 0 in fp32; and what is far from 0 may be off by some.
  static constexpr float least_weight = 160.0f;

  float scale;              // of products, in base 2
  float slope[2];           // what a key adds, of each row, before that scale
  float added[2];           // by the block's first key of this lane, behind it
  float unsound[2];         // NaN where what a row's keys have added is not finite, else 0
  Expressions::Row row[2];  // what is looked up for each
  bool weightless;          // the block before had no weight but 0, in all rows of the warp
  bool adds_nothing;        // nor in those of the warpgroup

  // The tile's rows, of which this warp's 16 begin with `first_row`.
  __device__ __forceinline__ void begin_rows(const Expressions& expressions, const ScoreRows& rows, int first_row,
                                             float log2_e) {
    scale = expressions.params.score_scale * log2_e;
    weightless = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const ScorePlace at = rows.place(first_row + h * 8 + static_cast<int>(lane_index()) / 4, 0);
      row[h] = expressions.row(at);
      slope[h] = expressions.added_by_key(at, row[h]) / expressions.params.score_scale;
      const float base = expressions.score(0.0f, at, row[h]);
      const bool hidden = base == minus_infinity();  // all keys, by the scores that they are given
      unsound[h] = (slope[h] - slope[h]) + (hidden ? 0.0f : base - base);
      if (!(unsound[h] == 0.0f)) slope[h] = 0.0f;
    }
  }

  // A block of their keys.
  __device__ __forceinline__ void begin_block(const Expressions& expressions, const ScoreRows& rows,
                                              const ScoreCorner& at, float log2_e) {
    const int lane = static_cast<int>(lane_index());
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const ScorePlace first = rows.place(at.row + h * 8 + lane / 4, at.key + lane % 4 * 2);
      added[h] = unsound[h] == 0.0f ? expressions.score(0.0f, first, row[h]) * log2_e : 0.0f;
    }
  }

  // Adds to the score of row h in tile n, column e.
  __device__ __forceinline__ void tilt(float& s, int h, int n, int e) const {
    if (n + e > 0) s += slope[h] * static_cast<float>(n * 8 + e);
  }

  // As LazySoftmax has it; NaN where that is what scores are, but not of a row that saw no key.
  __device__ __forceinline__ void finish(float (&inverse)[2], float (&lse)[2]) const {
    LazySoftmax<bound, rows_per_vote>::finish(inverse, lse);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (inverse[h] == 0.0f) continue;
      inverse[h] += unsound[h];
      lse[h] += unsound[h];
    }
  }

  // Of row h: given the largest score of this lane's columns, or NaN, what exponents are relative to from now on. False
  // if all weights of the warp's rows h are 0.
  __device__ __forceinline__ bool follow(int h, float largest) {
    float top = largest * scale + added[h];
    top = larger_or_nan(top, shuffle_xor(top, 1));
    top = larger_or_nan(top, shuffle_xor(top, 2));
    const bool weighs = any_lane(!(top < this->m[h] - least_weight));
    if constexpr (variant::rescale_bound == 0) {
      this->m[h] = larger(this->m[h], top);
    } else {
      if (top > this->m[h] + bound) this->m[h] = top;
    }
    return weighs;
  }
};

// A tile, of whose rows this warp's begin with `first_row`; and of their keys a block.
template <class Softmax>
__device__ __forceinline__ void tilt_rows(Softmax& softmax, const Expressions& expressions, const ScoreRows& rows,
                                          int first_row, float log2_e) {
  softmax.begin_rows(expressions, rows, first_row, log2_e);
}
template <class Softmax>
__device__ __forceinline__ void tilt_block(Softmax& softmax, const Expressions& expressions, const ScoreRows& rows,
                                           const ScoreCorner& at, float log2_e) {
  softmax.begin_block(expressions, rows, at, log2_e);
}

// The largest score of row h in this lane's columns, with what keys add.
template <class Softmax, int columns>
__device__ __forceinline__ float largest_tilted(const Softmax& softmax, float (&S)[columns][4], int h) {
  float largest = S[0][2 * h];
#pragma unroll
  for (int n = 0; n < columns; ++n) {
    softmax.tilt(S[n][2 * h], h, n, 0);
    softmax.tilt(S[n][2 * h + 1], h, n, 1);
    largest = larger_or_nan(larger_or_nan(largest, S[n][2 * h]), S[n][2 * h + 1]);
  }
  return largest;
}

// As update() of other softmaxes. Where a slope is steep most blocks are so far from a row that its weights there are 0
// in fp32. Blocks come from the diagonal on, so that behind one without weights another is expected: whether it has
// some is known before its exponentials, which are computed or not, and elsewhere behind them. The bits are the same,
// but for a V that is no number, which a weight of 0 may bring into O or not. S is left as it is where no weight was
// computed: zeros in it would take ptxas's registers for products under way.
template <Dtype dtype, class Softmax, int columns, class Between>
__device__ __forceinline__ void update_tilted(Softmax& softmax, float (&S)[columns][4], u32 (&P)[columns / 2][4],
                                              const Between& between) {
  const float before[2] = {softmax.m[0], softmax.m[1]};
  const float scale = softmax.scale;
  float sum[2][2] = {}, half = 0.0f;
  const auto weigh = [&](int h, int n, float shift) {
    S[n][2 * h] = exp2_approx(S[n][2 * h] * scale + shift);
    S[n][2 * h + 1] = exp2_approx(S[n][2 * h + 1] * scale + shift);
    sum[h][0] += S[n][2 * h];
    sum[h][1] += S[n][2 * h + 1];
  };
  bool weighs = false, computes = !softmax.weightless;
  if (computes) {
    weighs = softmax.follow(0, largest_tilted(softmax, S, 0));
    const float shift = softmax.added[0] - softmax.m[0];
    float largest = S[0][2];
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      weigh(0, n, shift);
      if (n == columns / 2) half = sum[0][0] + sum[0][1];
      softmax.tilt(S[n][2], 1, n, 0);
      softmax.tilt(S[n][3], 1, n, 1);
      largest = larger_or_nan(larger_or_nan(largest, S[n][2]), S[n][3]);
    }
    weighs |= softmax.follow(1, largest);
  } else {
    const float largest = largest_tilted(softmax, S, 0);
    weighs = softmax.follow(1, largest_tilted(softmax, S, 1));
    weighs |= softmax.follow(0, largest);
    computes = weighs;
    const float shift = softmax.added[0] - softmax.m[0];
    if (computes) {
#pragma unroll
      for (int n = 0; n < columns; ++n) weigh(0, n, shift);
    }
  }
  softmax.weightless = !weighs;
  softmax.adds_nothing = !named_barrier_any(first_vote + warp_index() / 4, warpgroup_size, weighs);
  settle(S);
  between(half);
  if (computes) {
    const float shift = softmax.added[1] - softmax.m[1];
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      weigh(1, n, shift);
      P[n / 2][n % 2 * 2] = pack<dtype>(S[n][0], S[n][1]);
      P[n / 2][n % 2 * 2 + 1] = pack<dtype>(S[n][2], S[n][3]);
    }
  } else {
#pragma unroll
    for (int n = 0; n < columns; ++n) P[n / 2][n % 2 * 2] = P[n / 2][n % 2 * 2 + 1] = 0;
  }
  softmax.correct(before);
  for (int h = 0; h < 2; ++h) softmax.l[h] += sum[h][0] + sum[h][1];
}
