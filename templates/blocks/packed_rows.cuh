// Queries of all heads that share keys and values, in the rows of one tile. So few queries fill a tile, and what their
// heads share is read once.
#pragma once

#include "blocks/mask.cuh"
#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Row q * ratio + h is query q of the h-th of `ratio` heads, a power of two. As boxes of a tensor map these rows lie
// one after the other when its dimensions are head_dim, heads, seqlen, batch.
template <int ratio>
struct PackedRow {
  static_assert(ratio >= 2 && (ratio & (ratio - 1)) == 0);

  __device__ __forceinline__ static int query(int row) { return static_cast<int>(static_cast<u32>(row) / ratio); }
  __device__ __forceinline__ static int head(int row) { return static_cast<int>(static_cast<u32>(row) % ratio); }
};

// As Mask, for packed rows.
template <int ratio>
struct PackedMask {
  int seqlen_k;
  int diagonal;

  __device__ __forceinline__ int limit(int row) const {
    const Mask of_queries{seqlen_k, diagonal};
    return of_queries.limit(PackedRow<ratio>::query(row));
  }
};

// As store_lse(); `lse` points at the first query of the rows' first head.
template <int ratio>
__device__ __forceinline__ void store_packed_lse(const float (&value)[2], float* lse, int first_row, int seqlen_q) {
  const u32 lane = lane_index();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane / 4);
    const int query = PackedRow<ratio>::query(row);
    const i64 head_lse = static_cast<i64>(PackedRow<ratio>::head(row)) * seqlen_q;
    if (lane % 4 == 0 && query < seqlen_q) store_global(lse + head_lse + query, value[h]);
  }
}
