// LSE of a warp's 16 rows from `first_row` on, which one lane of each quad writes; `lse` is that of the head's row 0.
#pragma once

#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

__device__ __forceinline__ void store_lse(const float (&value)[2], float* lse, int first_row, int rows) {
  const u32 lane = lane_index();
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane / 4);
    if (lane % 4 == 0 && row < rows) store_global(lse + row, value[h]);
  }
}
