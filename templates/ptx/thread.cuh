// The threads of a block: who they are (PTX ISA, "Special Registers"), and how they wait for each other
// ("bar.warp.sync" and "bar, barrier").
#pragma once

#include "types.h"

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % warp_size; }

// The same for all lanes of a warp, and known to the compiler to be so.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / warp_size, 0); }

// Read anew at each call: what is derived from it before a long loop and again after it needs no registers inside.
__device__ __forceinline__ uint3 block_index() {
  uint3 i;
  asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%ctaid.z;"
               : "=r"(i.x), "=r"(i.y), "=r"(i.z));
  return i;
}

__device__ __forceinline__ uint3 grid_size() { return {gridDim.x, gridDim.y, gridDim.z}; }

// What one thread of the block, or of the warp, wrote to memory before is seen by all after. Every one of them arrives.
__device__ __forceinline__ void block_barrier() { __syncthreads(); }
__device__ __forceinline__ void warp_barrier() { __syncwarp(); }
