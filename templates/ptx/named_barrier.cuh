// The block's other barriers (PTX ISA, "barrier"), for `threads` of its threads in whole warps: those that wait and
// those that only announce themselves. `id` is 1 to 15; 0 is block_barrier's. Who waits sees what all did before.
#pragma once

#include "types.h"

__device__ __forceinline__ void named_barrier_wait(u32 id, u32 threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_announce(u32 id, u32 threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
