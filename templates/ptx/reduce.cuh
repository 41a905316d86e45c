// Adding to global memory without a result (PTX ISA, "red"). Additions of all blocks to one place are each carried out
// whole, in any order.
#pragma once

#include "types.h"

__device__ __forceinline__ void add_global(float* pointer, float value) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(pointer)), "f"(value) : "memory");
}
