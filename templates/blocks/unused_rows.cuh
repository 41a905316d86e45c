// Zeros for gradients of rows that no sequence of a ragged batch has or uses, which no other kernel writes.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/sequence_rows.cuh"
#include "params.h"
#include "ptx/memory_chunks.cuh"
#include "types.h"

// A thread's share of rows: one of each `step`, and 16 bytes of each `lanes` times as many of its columns.
struct RowShare {
  u32 row;
  u32 step;
  u32 own_chunk;
  u32 lanes;
};

// The rows between those that a sequence uses and the next sequence's, or the end; and those before the first sequence.
struct UnusedRows {
  int before;  // so many stand before the first sequence
  int begin;   // the others stand from here
  int end;     // up to here

  __device__ __forceinline__ UnusedRows(const SequenceRows& used, const int* cu_seqlens, int sequence, int batch,
                                        int total) {
    const SequenceRows all(cu_seqlens, sequence, total, total);
    before = sequence == 0 ? all.first : 0;
    begin = used.first + used.count;
    end = sequence == batch - 1 ? total : all.first + all.count;
  }

  // Clears a thread's share of them in one head.
  __device__ __forceinline__ void clear(const AttuneTensor& gradient, int head, int columns,
                                        const RowShare& share) const {
    clear_between(gradient, head, columns, share, 0, before);
    clear_between(gradient, head, columns, share, begin, end);
  }

 private:
  // Rows are counted without a sign, as the last and a step may be more than an int holds.
  __device__ __forceinline__ static void clear_between(const AttuneTensor& gradient, int head, int columns,
                                                       const RowShare& share, int begin, int end) {
    const Matrix rows = head_of(gradient, 0, head, end, columns);
    for (u32 row = static_cast<u32>(begin) + share.row; row < static_cast<u32>(end); row += share.step) {
      for (u32 c = share.own_chunk; static_cast<int>(c * chunk) < columns; c += share.lanes) {
        store_global(rows.at(static_cast<int>(row), c), Chunk{});
      }
    }
  }
};
