// Where a sequence of a ragged batch lies among the rows of all, which only the device knows.
#pragma once

#include "ptx/memory_words.cuh"
#include "types.h"

// Rows of one sequence among those of all.
struct SequenceRows {
  int first;
  int count;

  SequenceRows() = default;

  // Whatever the array says, they are among the `total` rows, and at most `most`.
  __device__ __forceinline__ SequenceRows(const int* cu_seqlens, int batch, int total, int most) {
    first = clamped(load_global_int(cu_seqlens + batch), total);
    const int last = clamped(load_global_int(cu_seqlens + batch + 1), total);
    count = last > first ? last - first : 0;
    if (count > most) count = most;
  }

  // Only the first used[batch] of them count; all of them where there is no such array.
  __device__ __forceinline__ void keep(const int* used, int batch) {
    if (used == nullptr) return;
    const int kept = load_global_int(used + batch);
    if (kept < count) count = kept > 0 ? kept : 0;
  }

 private:
  // Before any difference is taken: that of two wild values would wrap.
  __device__ __forceinline__ static int clamped(int row, int total) {
    const int inside = row < total ? row : total;
    return inside > 0 ? inside : 0;
  }
};
