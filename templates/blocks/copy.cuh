// Tiles between global and shared memory, 16 bytes a thread, rows and columns that do not exist as zeros.
#pragma once

#include "blocks/tile.cuh"
#include "params.h"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// One head of a tensor: rows of `columns` elements, `stride` elements apart.
struct Matrix {
  char* data;
  i64 stride_bytes;
  int rows;
  int columns;

  __device__ __forceinline__ char* at(int row, int column_chunk) const {
    return data + row * stride_bytes + column_chunk * chunk_bytes;
  }
};

// The head of a tensor as a matrix of `rows` x `columns`.
__device__ __forceinline__ Matrix head_of(const AttuneTensor& tensor, int batch, int head, int rows, int columns) {
  const i64 elements = batch * tensor.stride_batch + head * tensor.stride_head;
  return {static_cast<char*>(tensor.data) + elements * 2, tensor.stride_seq * 2, rows, columns};
}

// Copies the tile that starts at row `first_row`. Threads lie over the tile as `span` chunks side by side, so
// that a run of threads reads consecutive memory; what lies outside the matrix is never read, so that nothing
// in padding reaches a product.
template <int threads, bool async, class TileType>
__device__ __forceinline__ void copy_tile(const TileType& tile, const Matrix& matrix, int first_row) {
  constexpr int rows_at_once = threads / TileType::span;
  const int thread_row = thread_index() / TileType::span;
  const int thread_chunk = thread_index() % TileType::span;
  const int rows_left = matrix.rows - first_row;
#pragma unroll
  for (int c = 0; c < TileType::chunks; c += TileType::span) {
    const bool column_exists = (thread_chunk + c) * chunk < matrix.columns;
    const char* source = matrix.at(first_row + thread_row, thread_chunk + c);
#pragma unroll
    for (int r = 0; r < TileType::rows; r += rows_at_once) {
      const int row = thread_row + r;
      if (TileType::rows % rows_at_once != 0 && row >= TileType::rows) break;
      const bool exists = column_exists && row < rows_left;
      if constexpr (async) {
        cp_async(tile.at(row, thread_chunk + c), source, exists);
      } else {
        Chunk data = {};
        if (exists) data = load_global(source);
        store_shared(tile.at(row, thread_chunk + c), data);
      }
      source += rows_at_once * matrix.stride_bytes;
    }
  }
}
