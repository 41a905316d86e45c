// LSE of a warp's 16 rows from `first_row` on, which one lane of each quad writes to where `place` has the row.
#pragma once

#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

template <class Place>
__device__ __forceinline__ void store_lse(const float (&value)[2], int first_row, int rows, const Place& place) {
  const u32 lane = lane_index();
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane / 4);
    if (lane % 4 == 0 && row < rows) store_global(place(row), value[h]);
  }
}
