// From a tile that all warps have filled to global memory.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/tile.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Writes the tile's rows and columns that the matrix has, 16 bytes a thread and row by row. Behind a barrier.
template <int threads, class TileType>
__device__ __forceinline__ void store_tile(const TileType& tile, const Matrix& matrix, int first_row) {
  constexpr u32 rows_at_once = threads / TileType::span;
  const u32 thread_row = thread_index() / TileType::span;
  const u32 thread_chunk = thread_index() % TileType::span;
#pragma unroll
  for (u32 r = 0; r < TileType::rows; r += rows_at_once) {
    const u32 row = r + thread_row;
    if (TileType::rows % rows_at_once != 0 && row >= TileType::rows) break;
    const int matrix_row = first_row + static_cast<int>(row);
#pragma unroll
    for (u32 c = 0; c < TileType::chunks; c += TileType::span) {
      const u32 column_chunk = c + thread_chunk;
      if (matrix_row < matrix.rows && static_cast<int>(column_chunk * chunk) < matrix.columns) {
        store_global(matrix.at(matrix_row, column_chunk), load_shared(tile.at(row, column_chunk)));
      }
    }
  }
}
