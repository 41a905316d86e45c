// Where the LSE of rows go.
#pragma once

#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Those of a head, one after the other.
struct LsePlaces {
  float* first;
  int rows;

  __device__ __forceinline__ bool has(int row) const { return row < rows; }
  __device__ __forceinline__ float* at(int row) const { return first + row; }
};

// A warp's 16 rows from `first_row` on, which one lane of each quad writes to where `places` has the row.
template <class Places>
__device__ __forceinline__ void store_lse(const float (&value)[2], int first_row, const Places& places) {
  const u32 lane = lane_index();
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane / 4);
    if (lane % 4 == 0 && places.has(row)) store_global(places.at(row), value[h]);
  }
}
