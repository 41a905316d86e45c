// Warps that each saw all keys for rows of their own: there is nothing to merge but the lanes of a row.
#pragma once

#include "blocks/merge.cuh"
#include "blocks/softmax.cuh"
#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// With the verb of WarpMerge, for a warp's rows from `own_row` of the tile on.
template <int row_tiles, int columns>
struct SplitRows {
  static constexpr int bytes = 0;

  u32 own_row;

  // Calls write(row, column, O, lse) for each four columns of the warp's rows below `rows`: O normalised, LSE to base 2
  // and -inf for a row that saw no key. All lanes together.
  template <class Write>
  __device__ __forceinline__ void merge(OnlineSoftmax<row_tiles, variant::score>& softmax,
                                        const float (&O)[row_tiles][columns / 8][4], float scale_log2, int rows,
                                        const Write& write) const {
    const u32 lane = lane_index();
    const bool is_odd = lane % 2 != 0;
    const int lane_column = static_cast<int>(lane % 4 / 2 * 4 + lane % 2 * 8);
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = static_cast<int>(own_row) + i * 16 + h * 8 + static_cast<int>(lane / 4);
        float sum = softmax.l[i][h];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const float m = softmax.m[i][h];
        const float shift = merged_shift<variant::score>(m, m * scale_log2);
        const float weight = exp2_approx(m * scale_log2 - shift);
#pragma unroll
        for (int d = 0; d < columns / 8; d += 2) {
          // Of two columns in each of two tiles a lane gives two away and gets their neighbours in the other.
          const float given[2] = {is_odd ? O[i][d][2 * h] : O[i][d + 1][2 * h],
                                  is_odd ? O[i][d][2 * h + 1] : O[i][d + 1][2 * h + 1]};
          const float got[2] = {shuffle_xor(given[0], 1), shuffle_xor(given[1], 1)};
          const Float4 part = is_odd ? Float4{got[0], got[1], O[i][d + 1][2 * h], O[i][d + 1][2 * h + 1]}
                                     : Float4{O[i][d][2 * h], O[i][d][2 * h + 1], got[0], got[1]};
          float l = 0.0f;
          Float4 o = {};
          merge_part(l, o, weight, sum, part);
          normalise(l, o);
          if (row < rows) write(row, d * 8 + lane_column, o, merged_lse(l, shift));
        }
      }
    }
  }
};
