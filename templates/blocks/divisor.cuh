// Division by a number that is not known before the kernel runs.
#pragma once

#include "ptx/math.cuh"
#include "types.h"

// Division by a number that stays: one multiplication, and a correction of at most one.
struct Divisor {
  u32 value;
  u32 inverse;  // 2^32 / value, rounded down

  __device__ __forceinline__ explicit Divisor(int divisor)
      : value(static_cast<u32>(divisor)), inverse(0xffffffffu / static_cast<u32>(divisor)) {}

  // n / value for n >= 0; `rest` becomes n % value.
  __device__ __forceinline__ int divide(int n, int& rest) const {
    const u32 quotient = multiply_high(static_cast<u32>(n), inverse);
    const u32 left = static_cast<u32>(n) - quotient * value;
    const bool more = left >= value;
    rest = static_cast<int>(more ? left - value : left);
    return static_cast<int>(more ? quotient + 1 : quotient);
  }
};

// n / d, exact for n below 2^31. The host computes the multiplier, which is 2^shift / d rounded up.
__device__ __forceinline__ u32 quotient_of(u32 n, u32 multiplier, int shift) {
  return static_cast<u32>(static_cast<u64>(n) * multiplier >> shift);
}
