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

// Four floats of what is handed over, 16-byte aligned.
__device__ __forceinline__ void store_floats(float* pointer, const float (&f)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(pointer)), "f"(f[0]),
               "f"(f[1]), "f"(f[2]), "f"(f[3])
               : "memory");
}
__device__ __forceinline__ void load_floats(float (&f)[4], const float* pointer) {
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
               : "l"(__cvta_generic_to_global(pointer)));
}
