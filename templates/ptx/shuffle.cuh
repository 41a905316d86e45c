// Exchange within a warp (PTX ISA, "shfl.sync", "vote.sync"). All 32 lanes take part.
#pragma once

#include "types.h"

// The value of lane (own lane ^ mask).
__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Whether the predicate holds in any lane; the same answer in all.
__device__ __forceinline__ bool any_lane(bool predicate) { return __any_sync(0xffffffffu, predicate) != 0; }
