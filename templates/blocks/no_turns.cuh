// In place of turns.cuh: consumer warpgroups issue their products as they come to them.
#pragma once

#include "types.h"

struct NoTurns {
  u32 warpgroup;

  __device__ __forceinline__ void begin() const {}
  __device__ __forceinline__ void take() const {}
  __device__ __forceinline__ void pass() const {}
  __device__ __forceinline__ void end() const {}
};
