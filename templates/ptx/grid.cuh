// Where a block stands in a grid of up to three dimensions (PTX ISA, "Special Registers").
#pragma once

#include "types.h"

// Read anew at each call: what is derived from it before a long loop and again after it needs no registers inside.
__device__ __forceinline__ uint3 block_index() {
  uint3 i;
  asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%ctaid.z;"
               : "=r"(i.x), "=r"(i.y), "=r"(i.z));
  return i;
}

__device__ __forceinline__ uint3 grid_size() { return {gridDim.x, gridDim.y, gridDim.z}; }
