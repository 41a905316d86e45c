// A tensor as chunks of 16 bytes, one a thread.
#pragma once

#include "params.h"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "types.h"

constexpr int element_bytes = chunk_bytes / chunk;

// The chunk of a batch x rows x heads x head_dim tensor that this thread has, column by column, head by head.
struct ChunkIndex {
  int batch;
  int row;
  int head;
  int column;  // its first element's
  bool exists;

  // In a grid of one dimension with blocks of `threads`.
  __device__ __forceinline__ ChunkIndex(int batches, int rows, int heads, int head_dim, int threads) {
    const u32 index = block_number() * static_cast<u32>(threads) + thread_index();
    const u32 chunks = static_cast<u32>(head_dim / chunk);
    const u32 all_heads = index / chunks;
    column = static_cast<int>(index - all_heads * chunks) * chunk;
    const u32 all_rows = all_heads / static_cast<u32>(heads);
    head = static_cast<int>(all_heads - all_rows * static_cast<u32>(heads));
    batch = static_cast<int>(all_rows / static_cast<u32>(rows));
    row = static_cast<int>(all_rows - static_cast<u32>(batch) * static_cast<u32>(rows));
    exists = batch < batches;
  }

  // The same chunk of another row.
  __device__ __forceinline__ ChunkIndex at(int other_batch, int other_row) const {
    ChunkIndex other = *this;
    other.batch = other_batch;
    other.row = other_row;
    return other;
  }

  __device__ __forceinline__ char* in(const AttuneTensor& tensor) const {
    return static_cast<char*>(tensor.data) +
           (batch * tensor.stride_batch + row * tensor.stride_seq + head * tensor.stride_head + column) * element_bytes;
  }
};
