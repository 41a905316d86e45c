// What warpgroups share: barriers besides the block's (PTX ISA, "barrier") and registers ("setmaxnreg").
#pragma once

#include "types.h"

// For `threads` of the block in whole warps: those that wait and those that only announce themselves. `id` is 1 to 15;
// 0 is block_barrier's. Who waits sees what all did before.
__device__ __forceinline__ void named_barrier_wait(u32 id, u32 threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_announce(u32 id, u32 threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Up, or down, to that many of each thread, once the block has them: a multiple of 8 from 24 to 256. All warps call it.
template <u32 registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <u32 registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
