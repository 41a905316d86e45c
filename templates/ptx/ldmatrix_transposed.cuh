// As ldmatrix, with the elements of each matrix's transpose (PTX ISA, "ldmatrix", ".trans").
#pragma once

#include "types.h"

__device__ __forceinline__ void ldmatrix_transposed(u32 (&words)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address));
}
