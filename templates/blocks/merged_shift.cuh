// What the exponentials of a row are relative to, to base 2.
#pragma once

#include "ptx/math.cuh"
#include "types.h"

// From now on: the largest m, scaled; or 0, where nobody saw a key. Where scores may be `any`, the scaled one may be
// -inf though m is a number: then it is the lowest number, so that no exponent is infinity less infinity.
template <bool any = false>
__device__ __forceinline__ float merged_shift(float largest, float scaled) {
  if constexpr (any) return larger(scaled, -3.40282347e38f);
  return largest == minus_infinity() ? 0.0f : scaled;
}
