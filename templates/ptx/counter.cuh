// A counter in global memory that all blocks share (PTX ISA, "atom"). Nothing else reads or writes it meanwhile, and
// its count orders nothing: one thread of a kernel before sets it to 0.
#pragma once

#include "types.h"

// Its count, from 0 on, of which each call has one of its own; who calls first has the smaller one.
__device__ __forceinline__ int count_global(int* counter) {
  int count;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(count)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return count;
}
