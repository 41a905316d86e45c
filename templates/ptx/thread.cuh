// Who am I (PTX ISA, "Special Registers").
#pragma once

#include "types.h"

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % warp_size; }

struct GridIndex {
  u32 x, y, z;
};

// Read anew at each call: what is derived from it before a long loop and again after it then needs no registers
// inside.
__device__ __forceinline__ GridIndex block_index() {
  GridIndex i;
  asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%ctaid.z;"
               : "=r"(i.x), "=r"(i.y), "=r"(i.z));
  return i;
}

__device__ __forceinline__ GridIndex grid_size() { return {gridDim.x, gridDim.y, gridDim.z}; }

// The same for all lanes of a warp, and known to the compiler to be so.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / warp_size, 0); }
