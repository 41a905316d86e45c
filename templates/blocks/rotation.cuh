// Rotary position embedding of two elements: pairs of a row's columns are turned by angles that depend on the row's
// position. Neighbouring columns make a pair (interleaved, as GPT-J has it), or columns rotary_dim / 2 apart (halves,
// GPT-NeoX).
#pragma once

#include "ptx/math.cuh"
#include "ptx/unpack.cuh"
#include "types.h"

// A pair, by the first or the second of two angles.
template <Dtype dtype>
__device__ __forceinline__ u32 turn_pair(u32 pair, bool second, u32 cosines, u32 sines) {
  const float cosine = second ? unpack_high<dtype>(cosines) : unpack_low<dtype>(cosines);
  const float sine = second ? unpack_high<dtype>(sines) : unpack_low<dtype>(sines);
  const float x = unpack_low<dtype>(pair);
  const float y = unpack_high<dtype>(pair);
  return pack<dtype>(x * cosine - y * sine, x * sine + y * cosine);
}

// Two elements of one half, of which `partners` are in the other, each by its own angle.
template <Dtype dtype>
__device__ __forceinline__ u32 turn_half(u32 elements, u32 partners, bool upper, u32 cosines, u32 sines) {
  const float sign = upper ? 1.0f : -1.0f;
  const float low = unpack_low<dtype>(elements) * unpack_low<dtype>(cosines) +
                    sign * unpack_low<dtype>(partners) * unpack_low<dtype>(sines);
  const float high = unpack_high<dtype>(elements) * unpack_high<dtype>(cosines) +
                     sign * unpack_high<dtype>(partners) * unpack_high<dtype>(sines);
  return pack<dtype>(low, high);
}
