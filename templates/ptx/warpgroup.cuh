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
// As named_barrier_wait: whether the predicate holds in any of those threads, the same answer in all.
__device__ __forceinline__ bool named_barrier_any(u32 id, u32 threads, bool predicate) {
  u32 any;
  asm volatile("{.reg .pred p, q; setp.ne.u32 p, %3, 0; barrier.cta.red.or.pred q, %1, %2, p; selp.u32 %0, 1, 0, q;}"
               : "=r"(any)
               : "r"(id), "r"(threads), "r"(static_cast<u32>(predicate))
               : "memory");
  return any != 0;
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
