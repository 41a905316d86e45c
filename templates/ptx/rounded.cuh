// A float with the precision of a 16-bit element, rounded as pack() does it (PTX ISA, "cvt").
#pragma once

#include "types.h"

template <Dtype dtype>
__device__ __forceinline__ float rounded(float x) {
  static_assert(dtype == variant::dtype);
  float y;
  if constexpr (variant::dtype == Dtype::bf16) {
    asm("{.reg .b16 half; cvt.rn.bf16.f32 half, %1; cvt.f32.bf16 %0, half;}" : "=f"(y) : "f"(x));
  } else {
    asm("{.reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.f32.f16 %0, half;}" : "=f"(y) : "f"(x));
  }
  return y;
}
