// LSE from a warp's accumulators to global memory.
#pragma once

#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Writes a warp's rows of LSE; `lse` points at row 0 of the head. One lane of each quad writes.
template <int row_tiles>
__device__ __forceinline__ void store_lse(const float (&value)[row_tiles][2], float* lse, int first_row, int rows) {
  const u32 lane = lane_index();
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + i * 16 + h * 8 + static_cast<int>(lane / 4);
      if (lane % 4 == 0 && row < rows) store_global(lse + row, value[i][h]);
    }
  }
}
