// Arithmetic with no plain C++ spelling (PTX ISA, "ex2", "lg2", "max", "cvt").
#pragma once

#include "types.h"

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

// 2^x on the special-function unit, 2 ulp; 2^-inf = 0; subnormal results are zero.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// log2 x on the special-function unit.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The larger of the two; of a number and NaN, the number.
__device__ __forceinline__ float larger(float x, float y) { return fmaxf(x, y); }
// The same, but NaN if one of them is.
__device__ __forceinline__ float larger_or_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// Two floats rounded to nearest even and packed, `low` in the lower half.
template <Dtype dtype>
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 word;
  static_assert(dtype == variant::dtype);
  if constexpr (variant::dtype == Dtype::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

// The place of the highest bit that is set, of which there is one.
__device__ __forceinline__ int highest_bit(u32 x) { return 31 - __clz(static_cast<int>(x)); }

// The upper half of the 64-bit product.
__device__ __forceinline__ u32 multiply_high(u32 x, u32 y) { return __umulhi(x, y); }
