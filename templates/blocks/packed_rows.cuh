// Queries of all heads that share keys and values, in the rows of one tile: few of them fill it, and what their heads
// share is read once. Row q * ratio + h is query q of the h-th of `ratio` heads, a power of two. As boxes of a tensor
// map these rows lie one after the other when its dimensions are head_dim, heads, seqlen, batch.
#pragma once

#include "blocks/mask.cuh"
#include "types.h"

template <int ratio>
struct PackedMask : Mask {
  __device__ __forceinline__ static int query(int row) { return static_cast<int>(static_cast<u32>(row) / ratio); }
  __device__ __forceinline__ static int head(int row) { return static_cast<int>(static_cast<u32>(row) % ratio); }
  __device__ __forceinline__ int limit(int row) const { return Mask::limit(query(row)); }
};
