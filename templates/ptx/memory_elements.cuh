// Plain access to global memory one 16-bit element at a time (PTX ISA, "ld", "st").
#pragma once

#include "types.h"

// In the lower half; `pointer` 2-byte aligned.
__device__ __forceinline__ u32 load_global_element(const void* pointer) {
  u32 element;
  asm volatile("{.reg .u16 half; ld.global.u16 half, [%1]; cvt.u32.u16 %0, half;}"
               : "=r"(element)
               : "l"(__cvta_generic_to_global(pointer)));
  return element;
}

// The lower half of `element`; `pointer` 2-byte aligned.
__device__ __forceinline__ void store_global_element(void* pointer, u32 element) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(pointer)), "r"(element) : "memory");
}
