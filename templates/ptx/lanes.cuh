// Values of one lane for others (PTX ISA, "shfl.sync"). All 32 lanes take part.
#pragma once

#include "types.h"

// The value of lane `source`.
__device__ __forceinline__ int shuffle_from(int value, u32 source) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(source));
}

__device__ __forceinline__ float shuffle_from(float value, u32 source) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(source));
}

// The value of lane `source` of the aligned run of `lanes` (a power of two) that this lane is in: where the compiler
// knows the source, a part of the instruction.
template <u32 lanes>
__device__ __forceinline__ int shuffle_among(int value, u32 source) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(source), static_cast<int>(lanes));
}

// The sum of all lanes' values, in each (PTX ISA, "redux.sync"; compute capability 8.0 and newer).
__device__ __forceinline__ int sum_of_lanes(int value) { return __reduce_add_sync(0xffffffffu, value); }

// The smallest and the largest of them, likewise.
__device__ __forceinline__ int least_of_lanes(int value) { return __reduce_min_sync(0xffffffffu, value); }
__device__ __forceinline__ int greatest_of_lanes(int value) { return __reduce_max_sync(0xffffffffu, value); }

// A value that is the same in all lanes, and known to the compiler to be so.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// lane_index(), read anew at each call: what is derived from it needs no registers around a loop that uses it.
__device__ __forceinline__ u32 lane_anew() {
  u32 lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
