// Barriers in shared memory that count bytes too (PTX ISA, "mbarrier"). A phase is over when every expected arrival has
// come and every expected byte has landed; the next one begins at once. Who waits names the phase by its parity: a
// fresh barrier is in phase 0, so that waiting for parity 1 returns at once.
#pragma once

#include "types.h"

[[maybe_unused]] constexpr u32 mbarrier_bytes = 8;

// One thread; `address` 8-byte aligned. The others know it behind mbarrier_fence() and a block barrier.
__device__ __forceinline__ void mbarrier_init(u32 address, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
}
// Shows the barriers that this thread initialised to the copy engine.
__device__ __forceinline__ void mbarrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// What this thread did before is seen by who waits for the phase, which needs so many more `bytes` of bulk copies, too.
__device__ __forceinline__ void mbarrier_arrive(u32 address) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(u32 address, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}
// Whether the phase of this parity is over.
__device__ __forceinline__ bool mbarrier_test(u32 address, u32 parity) {
  u32 over;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
               : "=r"(over)
               : "r"(address), "r"(parity)
               : "memory");
  return over != 0;
}
// Returns once the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(u32 address, u32 parity) {
  asm volatile(
      "{.reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra wait;}" ::"r"(address),
      "r"(parity)
      : "memory");
}
