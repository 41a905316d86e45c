// Who am I (PTX ISA, "Special Registers").
#pragma once

#include "types.h"

__device__ __forceinline__ int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ i64 block_index() { return static_cast<i64>(blockIdx.x); }

// The same for all lanes of a warp, and known to the compiler to be so.
__device__ __forceinline__ int warp_index() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / warp_size, 0);
}
