// Registers handed from one warpgroup to another (PTX ISA, "setmaxnreg"). Every warp of a warpgroup calls it; the
// counts are multiples of 8 from 24 to 256.
#pragma once

#include "types.h"

// Waits until the block has that many to give.
template <u32 registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <u32 registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
