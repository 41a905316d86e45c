// Plain access to shared and global memory a word or two at a time (PTX ISA, "ld", "st").
#pragma once

#include "types.h"

__device__ __forceinline__ int load_global_int(const int* pointer) {
  int value;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(pointer)));
  return value;
}

__device__ __forceinline__ i64 load_global_long(const i64* pointer) {
  i64 value;
  asm volatile("ld.global.s64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(pointer)));
  return value;
}

__device__ __forceinline__ float load_global_float(const float* pointer) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(__cvta_generic_to_global(pointer)));
  return value;
}

// 4 bytes: one pair of 16-bit elements; `pointer` 4-byte aligned.
__device__ __forceinline__ u32 load_global_word(const void* pointer) {
  u32 word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(__cvta_generic_to_global(pointer)));
  return word;
}

// 8 bytes: two pairs of 16-bit elements; `pointer` 8-byte aligned.
__device__ __forceinline__ void store_global(void* pointer, u32 first, u32 second) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(pointer)), "r"(first), "r"(second)
               : "memory");
}

// Has the line that holds these bytes, and the translation of their address, come near (PTX ISA, "prefetch"). Whatever
// stands there may still be written.
__device__ __forceinline__ void prefetch_global(const void* pointer) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(pointer)) : "memory");
}

__device__ __forceinline__ u32 load_shared_word(u32 address) {
  u32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

__device__ __forceinline__ float load_shared_float(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_shared(u32 address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// `address` 8-byte aligned.
__device__ __forceinline__ void store_shared(u32 address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}
