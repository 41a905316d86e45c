// Where the backward pass finishes scores that a spec's expressions change: by the same places and blocks as the
// forward pass, in accumulators whose rows are keys.
#pragma once

#include "blocks/express_scores.cuh"
#include "blocks/expressions.cuh"
#include "blocks/score_place.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// The rows of one head of a sequence, the `batch`-th.
template <class Sequence>
__device__ __forceinline__ ScoreRows rows_of_head(const Sequence& sequence, int batch, int head, int kv_head) {
  return {batch, head, kv_head, 1, sequence.keys.count - sequence.queries.count, 0};
}

// The spec's expressions in the scores of the keys from `key` on, 16 to a tile of rows, and of the queries from `query`
// on. What is looked up for all keys of a query serves those that a lane has.
template <int row_tiles, int columns>
__device__ __forceinline__ void express_transposed(float (&S)[row_tiles][columns][4], const Expressions& expressions,
                                                   const ScoreRows& rows, int key, int query) {
  const int lane = static_cast<int>(lane_index());
  [[maybe_unused]] bool masks = false;
  if constexpr (variant::mask) masks = !Expressions::shows(rows.box(query, columns * 8, key, row_tiles * 16)).surely;
  if constexpr (!variant::score) {
    if (!masks) return;
  }
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const ScorePlace first = rows.place(query + lane % 4 * 2 + n * 8 + e, key + lane / 4);
      const Expressions::Row row = expressions.row(first);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          ScorePlace place = first;
          place.k += i * 16 + h * 8;
          float& s = S[i][n][2 * h + e];
          if constexpr (variant::score) s = expressions.score(s * expressions.params.score_scale, place, row);
          if constexpr (variant::mask) {
            if (masks && !expressions.sees(place, row, expressions.key(place))) s = minus_infinity();
          }
        }
      }
    }
  }
}
