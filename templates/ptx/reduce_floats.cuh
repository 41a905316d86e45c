// Adding to four neighbours in global memory at once (PTX ISA, "red", .v4; compute capability 9.0); each of them as
// reduce.cuh has it.
#pragma once

#include "types.h"

// `pointer` is 16-byte aligned.
__device__ __forceinline__ void add_global(float* pointer, const float (&f)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(pointer)), "f"(f[0]),
               "f"(f[1]), "f"(f[2]), "f"(f[3])
               : "memory");
}
