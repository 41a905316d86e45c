// Words by which blocks hand over what they wrote to global memory (PTX ISA, "st.release", "ld.acquire"). Their places
// are 8-byte aligned and for nothing else. Blocks start in order, so that one may only wait for those of lower numbers.
#pragma once

#include "types.h"

// Who awaits the word may read what this thread wrote before, and what barriers made known to it.
__device__ __forceinline__ void announce_word(u64* place, u64 word) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(place)), "l"(word) : "memory");
}

// Returns once the word stands there. All lanes of a warp call it.
__device__ __forceinline__ void await_word(const u64* place, u64 word) {
  u64 found;
  do {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(__cvta_generic_to_global(place)) : "memory");
  } while (__any_sync(~0u, found != word));
}

// Of what was handed over.
__device__ __forceinline__ float load_global(const float* pointer) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(__cvta_generic_to_global(pointer)) : "memory");
  return value;
}
