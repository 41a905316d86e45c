// Sums and maxima over the lanes of a warp.
#pragma once

#include "ptx/lanes.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Of all lanes up to and including this one.
__device__ __forceinline__ int sum_up_to_lane(int value) {
  const u32 lane = lane_index();
#pragma unroll
  for (u32 distance = 1; distance < warp_size; distance *= 2) {
    const int below = shuffle_from(value, lane >= distance ? lane - distance : lane);
    if (lane >= distance) value += below;
  }
  return value;
}

// Of all lanes, in each and always in one order.
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) value += shuffle_xor(value, distance);
  return value;
}

__device__ __forceinline__ float largest_of_lanes(float value) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) value = larger(value, shuffle_xor(value, distance));
  return value;
}
