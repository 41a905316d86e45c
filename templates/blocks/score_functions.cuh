// What expressions call, beside ranges.cuh's functions of integers and ptx/math.cuh's.
#pragma once

#include "blocks/softcap.cuh"
#include "types.h"

__device__ __forceinline__ float minimum_of(float x, float y) { return x < y ? x : y; }
__device__ __forceinline__ float maximum_of(float x, float y) { return x > y ? x : y; }
__device__ __forceinline__ int absolute_of(int x) { return x < 0 ? -x : x; }
__device__ __forceinline__ float absolute_of(float x) { return x < 0.0f ? -x : x; }
__device__ __forceinline__ float tanh_of(float x) { return tanh_base_2(x * 2.88539008f); }  // 2 / ln 2
