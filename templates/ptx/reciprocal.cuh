// Division where an ulp does not matter (PTX ISA, "rcp").
#pragma once

// 1 / x on the special-function unit, 1 ulp.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
