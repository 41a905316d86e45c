// Plain access to shared and global memory 16 bytes at a time, and of what does not fill them (PTX ISA, "ld", "st").
#pragma once

#include "types.h"

// Elements in the 16 bytes that cp.async, ldmatrix and a vector access move as one: a chunk.
[[maybe_unused]] constexpr int chunk = 8;
[[maybe_unused]] constexpr int chunk_bytes = 16;

struct alignas(16) Chunk {
  u32 word[4];
};

// 16 bytes; `address` 16-byte aligned.
__device__ __forceinline__ Chunk load_shared(u32 address) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "r"(address)
               : "memory");
  return c;
}

__device__ __forceinline__ void store_shared(u32 address, const Chunk& c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(c.word[0]), "r"(c.word[1]),
               "r"(c.word[2]), "r"(c.word[3])
               : "memory");
}

// 4 bytes: one pair of 16-bit elements.
__device__ __forceinline__ void store_shared(u32 address, u32 word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

// 16 bytes; `pointer` 16-byte aligned global memory.
__device__ __forceinline__ Chunk load_global(const void* pointer) {
  Chunk c;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "l"(__cvta_generic_to_global(pointer)));
  return c;
}

__device__ __forceinline__ void store_global(void* pointer, const Chunk& c) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(pointer)), "r"(c.word[0]),
               "r"(c.word[1]), "r"(c.word[2]), "r"(c.word[3])
               : "memory");
}
