// The threads of a block: who they are (PTX ISA, "Special Registers"), how they wait for each other ("bar.warp.sync",
// "bar, barrier"), and what the lanes of a warp tell each other, all 32 of them ("shfl.sync", "vote.sync").
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
// The value of lane (own lane ^ mask).
__device__ __forceinline__ float shuffle_xor(float value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
// Whether the predicate holds in any lane; the same answer in all.
__device__ __forceinline__ bool any_lane(bool predicate) { return __any_sync(~0u, predicate) != 0; }
