// Queries of all heads that share keys and values, which are read once for them: row q * ratio + h of a tile is query q
// of the h-th of `ratio` heads, a power of two. In a tensor map of head_dim, heads, seqlen, batch they are consecutive.
#pragma once

#include "blocks/mask.cuh"
#include "types.h"

template <int ratio>
struct PackedMask : Mask {
  __device__ __forceinline__ static int query(int row) { return static_cast<int>(static_cast<u32>(row) / ratio); }
  __device__ __forceinline__ static int head(int row) { return static_cast<int>(static_cast<u32>(row) % ratio); }
  __device__ __forceinline__ int limit(int row) const { return Mask::limit(query(row)); }
};
