// Zeros for gradients of rows that no sequence of a ragged batch has or uses, which no other kernel writes.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/sequence_rows.cuh"
#include "params.h"
#include "ptx/memory_chunks.cuh"
#include "types.h"

// A thread's part of the rows that are cleared: of each `step` rows one, and of its columns 16 bytes in each `lanes`.
struct UnusedRows {
  u32 first;
  u32 step;
  u32 own_chunk;
  u32 lanes;

  // One head's rows that stand between those that a sequence uses and the next sequence's, or the end; and those
  // before the first sequence. Where there are none, nothing is done.
  __device__ __forceinline__ void clear(const AttuneTensor& gradient, int head, int columns, const SequenceRows& used,
                                        const int* cu_seqlens, int sequence, int batch, int total) const {
    if (sequence == 0) clear_between(gradient, head, columns, 0, used.first);
    const SequenceRows all(cu_seqlens, sequence, total, total);
    const int end = sequence == batch - 1 ? total : all.first + all.count;
    clear_between(gradient, head, columns, used.first + used.count, end);
  }

 private:
  // Rows are counted without a sign, as `step` beyond the last may wrap.
  __device__ __forceinline__ void clear_between(const AttuneTensor& gradient, int head, int columns, int begin,
                                                int end) const {
    const Matrix rows = head_of(gradient, 0, head, end, columns);
    for (u32 row = static_cast<u32>(begin) + first; row < static_cast<u32>(end); row += step) {
      for (u32 c = own_chunk; static_cast<int>(c * chunk) < columns; c += lanes) {
        store_global(rows.at(static_cast<int>(row), c), Chunk{});
      }
    }
  }
};
