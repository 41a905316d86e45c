// What rounding to 16 bits takes from the weights of a block's first keys, as A operands of wgmma like P itself.
#pragma once

#include "ptx/math.cuh"
#include "ptx/rounded.cuh"
#include "types.h"

template <Dtype dtype, int steps, int columns>
__device__ __forceinline__ void take_residual(u32 (&R)[steps][4], const float (&weights)[columns][4], bool none) {
#pragma unroll
  for (int i = 0; i < steps * 4; ++i) {
    const float low = weights[i / 2][i % 2 * 2];
    const float high = weights[i / 2][i % 2 * 2 + 1];
    R[i / 4][i % 4] = none ? 0 : pack<dtype>(low - rounded<dtype>(low), high - rounded<dtype>(high));
  }
}
