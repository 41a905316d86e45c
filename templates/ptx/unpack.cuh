// 16-bit elements as floats (PTX ISA, "cvt").
#pragma once

#include "types.h"

// The element in the lower half of a word.
template <Dtype dtype>
__device__ __forceinline__ float unpack_low(u32 word) {
  static_assert(dtype == variant::dtype);
  if constexpr (variant::dtype == Dtype::bf16) {
    return __uint_as_float(word << 16);
  } else {
    float value;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(word));
    return value;
  }
}

// The element in the upper half.
template <Dtype dtype>
__device__ __forceinline__ float unpack_high(u32 word) {
  return unpack_low<dtype>(word >> 16);
}
