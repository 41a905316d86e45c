// Four 8 x 8 matrices of 16-bit elements from shared memory (PTX ISA, "ldmatrix"): lane i of the warp gives the address
// of row i % 8 of matrix i / 8 (16-byte aligned) and gets, in word j, elements (i / 4, 2 * (i % 4)) and next of it.
#pragma once

#include "types.h"

__device__ __forceinline__ void ldmatrix(u32 (&words)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address));
}
