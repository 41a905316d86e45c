// How what several found in different keys of a row comes to one result: warps, the blocks of a cluster, splits of a
// sequence. Each has a maximum m, a sum of exponentials l relative to it, and O, four columns at a time; of one that is
// normalised already LSE stands for m, and l is 1. Everything is to base 2. Functions over plain values: of a struct
// with the same verbs ptxas orders the instructions otherwise.
#pragma once

#include "blocks/merged_shift.cuh"
#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/reciprocal.cuh"
#include "types.h"

// Adds what one found to l and O; `weight` is 2^(its m - shift).
__device__ __forceinline__ void merge_part(float& l, Float4& O, float weight, float part_l, const Float4& part_O) {
  l += part_l * weight;
#pragma unroll
  for (int e = 0; e < 4; ++e) O.value[e] += weight * part_O.value[e];
}

// O over l; zeros of a row that saw no key.
__device__ __forceinline__ void normalise(float l, Float4& O) {
  const float inverse_l = l == 0.0f ? 0.0f : reciprocal_approx(l);
#pragma unroll
  for (int e = 0; e < 4; ++e) O.value[e] *= inverse_l;
}

// -inf of a row that saw no key.
__device__ __forceinline__ float merged_lse(float l, float shift) {
  return l == 0.0f ? minus_infinity() : shift + log2_approx(l);
}
