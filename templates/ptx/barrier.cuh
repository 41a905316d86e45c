// Barriers (PTX ISA, "bar.warp.sync" and "bar, barrier"): memory written before by one thread of the group is
// seen after by all. Every thread of the group must arrive.
#pragma once

__device__ __forceinline__ void block_barrier() { __syncthreads(); }
__device__ __forceinline__ void warp_barrier() { __syncwarp(); }
