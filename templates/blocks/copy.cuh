// Tiles between global and shared memory, 16 bytes a thread, rows and columns that do not exist as zeros.
#pragma once

#include "blocks/partial_chunk.cuh"
#include "blocks/tile.cuh"
#include "params.h"
#include "ptx/cp_async.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "types.h"

enum class Operand { K, V };

// One head of a tensor: rows of `columns` elements, `stride` elements apart.
struct Matrix {
  char* data;
  i64 stride_bytes;
  int rows;
  int columns;

  __device__ __forceinline__ char* at(int row, u32 column_chunk) const {
    return data + row * stride_bytes + column_chunk * chunk_bytes;
  }
};

// The head of a tensor as a matrix of `rows` x `columns`.
__device__ __forceinline__ Matrix head_of(const AttuneTensor& tensor, int batch, int head, int rows, int columns) {
  const i64 elements = batch * tensor.stride_batch + head * tensor.stride_head;
  return {static_cast<char*>(tensor.data) + elements * 2, tensor.stride_seq * 2, rows, columns};
}

// Copies 16 bytes, or zeros where they do not exist, which then are not read.
template <bool async>
__device__ __forceinline__ void copy_chunk(u32 address, const char* from, bool exists) {
  if constexpr (async) {
    cp_async(address, from, exists);
  } else {
    Chunk data = {};
    if (exists) data = load_global(from);
    store_shared(address, data);
  }
}

// Columns of K and V: rows that are `cut` have fewer than those of Q.
template <bool cut>
__device__ __forceinline__ int key_columns(const AttunePrefillParams& params) {
  return cut ? params.key_columns : params.head_dim;
}

// One thread's share in copying the tiles of a matrix, from one tile to the next. Threads lie over a tile as `span`
// chunks side by side, so that a run of threads reads consecutive memory.
template <class TileType, int threads, bool async, bool cut = false>
struct TileCopy {
  static constexpr u32 rows_at_once = threads / TileType::span;

  char* source;  // this thread's first chunk of the next tile to copy
  i64 stride_bytes;
  int rows_left;     // of the matrix, from this thread's first row of that tile on
  int columns_left;  // likewise

  __device__ __forceinline__ TileCopy(const Matrix& matrix, int first_row) {
    const int thread_row = first_row + static_cast<int>(thread_index() / TileType::span);
    const u32 thread_chunk = thread_index() % TileType::span;
    source = matrix.at(thread_row, thread_chunk);
    stride_bytes = matrix.stride_bytes;
    rows_left = matrix.rows - thread_row;
    columns_left = matrix.columns - static_cast<int>(thread_chunk * chunk);
  }

  // Goes `tiles` tiles down.
  __device__ __forceinline__ void move(int tiles) {
    source += tiles * TileType::rows * stride_bytes;
    rows_left -= tiles * TileType::rows;
  }

  // Copies the tile. What lies outside the matrix becomes zero and is never read, so that nothing in padding
  // reaches a product; `whole` promises that all rows exist.
  template <bool whole>
  __device__ __forceinline__ void copy(const TileType& tile) const {
    const u32 thread_row = thread_index() / TileType::span;
    const u32 thread_chunk = thread_index() % TileType::span;
#pragma unroll
    for (u32 c = 0; c < TileType::chunks; c += TileType::span) {
      const bool column_exists = static_cast<int>(c * chunk) < columns_left;
      const char* from = source + c * chunk_bytes;
#pragma unroll
      for (u32 r = 0; r < TileType::rows; r += rows_at_once) {
        if (TileType::rows % rows_at_once != 0 && thread_row + r >= TileType::rows) break;
        const bool exists = column_exists && (whole || static_cast<int>(r) < rows_left);
        const u32 to = tile.at(thread_row + r, thread_chunk + c);
        if constexpr (cut) {
          cp_async(to, from, bytes_of_columns(columns_left - static_cast<int>(c * chunk)), exists);
        } else {
          copy_chunk<async>(to, from, exists);
        }
        from += rows_at_once * stride_bytes;
      }
    }
  }
};
