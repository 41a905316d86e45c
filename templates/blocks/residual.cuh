// What rounding to 16 bits takes from the weights of a block's first keys, as A operands of wgmma like P itself.
#pragma once

#include "ptx/math.cuh"
#include "ptx/rounded.cuh"
#include "types.h"

template <Dtype dtype, int steps, int columns>
__device__ __forceinline__ void take_residual(u32 (&R)[steps][4], const float (&weights)[columns][4], bool none) {
#pragma unroll
  for (int i = 0; i < steps * 4; ++i) {
    const float* const w = weights[i / 2] + i % 2 * 2;
    R[i / 4][i % 4] = none ? 0 : pack<dtype>(w[0] - rounded<dtype>(w[0]), w[1] - rounded<dtype>(w[1]));
  }
}
