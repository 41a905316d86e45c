// From accumulators to global memory.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/tile.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Writes a warp's rows of O, scaled by `factor`, to the matrix. They pass through the warp's own rows of a
// shared tile, which nobody may be using any more, so that global memory is written 16 bytes a lane and row by row.
template <Dtype dtype, int row_tiles, int columns, class TileType>
__device__ __forceinline__ void store_rows(const float (&O)[row_tiles][columns][4], const float (&factor)[row_tiles][2],
                                           const TileType& tile, u32 tile_row, const Matrix& matrix, int first_row) {
  const u32 lane = lane_index();
#pragma unroll
  for (u32 i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (u32 d = 0; d < columns; ++d) {
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        const u32 word = pack<dtype>(O[i][d][2 * h] * factor[i][h], O[i][d][2 * h + 1] * factor[i][h]);
        store_shared(tile.at(tile_row + i * 16 + h * 8 + lane / 4, d) + lane % 4 * 4, word);
      }
    }
  }
  warp_barrier();
  constexpr u32 rows_at_once = warp_size / TileType::span;
#pragma unroll
  for (u32 c = 0; c < TileType::chunks; c += TileType::span) {
    const u32 column_chunk = c + lane % TileType::span;
#pragma unroll
    for (u32 r = 0; r < row_tiles * 16; r += rows_at_once) {
      const u32 row = r + lane / TileType::span;
      const int matrix_row = first_row + static_cast<int>(row);
      if (matrix_row < matrix.rows && static_cast<int>(column_chunk * chunk) < matrix.columns) {
        store_global(matrix.at(matrix_row, column_chunk), load_shared(tile.at(tile_row + row, column_chunk)));
      }
    }
  }
}
