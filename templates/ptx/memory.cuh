// Shared memory, whose addresses are byte offsets in its state space, and plain stores of words (PTX ISA, "st").
#pragma once

#include "types.h"

// The block's dynamic shared memory. It starts 512-byte aligned, which swizzles and rows of up to 32 chunks rely on.
__device__ __forceinline__ u32 shared_memory() {
  extern __shared__ __align__(512) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ void store_global(float* pointer, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(pointer)), "f"(value) : "memory");
}
