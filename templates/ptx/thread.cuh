// The threads of a block: who they are (PTX ISA, "Special Registers"), and how they wait for each other
// ("bar.warp.sync" and "bar, barrier").
#pragma once

#include "types.h"

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % warp_size; }
__device__ __forceinline__ u32 block_number() { return blockIdx.x; }  // of blocks that lie in one row
__device__ __forceinline__ u32 block_count() { return gridDim.x; }

// The same for all lanes of a warp, and known to the compiler to be so.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / warp_size, 0); }

// What one thread of the block, or of the warp, wrote to memory before is seen by all after. Every one of them arrives.
__device__ __forceinline__ void block_barrier() { __syncthreads(); }
__device__ __forceinline__ void warp_barrier() { __syncwarp(); }
