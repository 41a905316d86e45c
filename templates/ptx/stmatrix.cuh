// Four 8 x 8 matrices of 16-bit elements from registers to shared memory (PTX ISA, "stmatrix"), in the layout of mma's
// accumulators, packed: lane 8 i + r gives the address of row r of matrix i.
#pragma once

#include "types.h"

__device__ __forceinline__ void store_matrices(u32 address, const u32 (&word)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
