// Four floats at a time (PTX ISA, "ld", "st"); addresses 16-byte aligned.
#pragma once

#include "types.h"

struct alignas(16) Float4 {
  float value[4];
};

__device__ __forceinline__ Float4 load_shared_floats(u32 address) {
  Float4 f;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.value[0]), "=f"(f.value[1]), "=f"(f.value[2]), "=f"(f.value[3])
               : "r"(address)
               : "memory");
  return f;
}

__device__ __forceinline__ Float4 load_global_floats(const float* pointer) {
  Float4 f;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.value[0]), "=f"(f.value[1]), "=f"(f.value[2]), "=f"(f.value[3])
               : "l"(__cvta_generic_to_global(pointer)));
  return f;
}

__device__ __forceinline__ void store_global(float* pointer, const Float4& f) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(pointer)), "f"(f.value[0]),
               "f"(f.value[1]), "f"(f.value[2]), "f"(f.value[3])
               : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, const Float4& f) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(f.value[0]), "f"(f.value[1]),
               "f"(f.value[2]), "f"(f.value[3])
               : "memory");
}
