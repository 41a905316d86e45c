// From wgmma accumulators to global memory.
#pragma once

#include "blocks/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Transposes 4 x 4 words over the lanes of a quad: lane i gives words 0 to 3 and gets word i of lanes 0 to 3.
__device__ __forceinline__ void transpose_quad(u32 (&word)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (lane_index() & static_cast<u32>(bit)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      u32& low = word[i];
      u32& high = word[i | bit];
      const u32 got = shuffle_xor(upper ? low : high, bit);
      (upper ? low : high) = got;
    }
  }
}

// Writes the warp's 16 rows of O, scaled by `factor`, to the rows of a matrix from `first_row` on. A lane holds two
// columns of each eight; the quad exchanges them, so that each lane writes 16 bytes, four of them 64 in a row.
template <Dtype dtype, int columns>
__device__ __forceinline__ void store_quads(const float (&O)[columns][4], const float (&factor)[2],
                                            const Matrix& matrix, int first_row) {
  const u32 lane = lane_index();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane / 4);
#pragma unroll
    for (int d = 0; d < columns; d += 4) {
      Chunk chunk_of_row;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        chunk_of_row.word[i] = pack<dtype>(O[d + i][2 * h] * factor[h], O[d + i][2 * h + 1] * factor[h]);
      }
      transpose_quad(chunk_of_row.word);
      const u32 column_chunk = d + lane % 4;
      if (row < matrix.rows && static_cast<int>(column_chunk * chunk) < matrix.columns) {
        store_global(matrix.at(row, column_chunk), chunk_of_row);
      }
    }
  }
}
