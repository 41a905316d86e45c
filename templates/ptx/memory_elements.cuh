// Plain access to global memory one 16-bit element at a time (PTX ISA, "st").
#pragma once

#include "types.h"

// The lower half of `element`; `pointer` 2-byte aligned.
__device__ __forceinline__ void store_global_element(void* pointer, u32 element) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(pointer)), "r"(element) : "memory");
}
