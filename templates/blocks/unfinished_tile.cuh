// A tile that one thread block leaves and the next one goes on with (Stream-K, arXiv 2301.03598): its partials are what
// lanes hold between two blocks of keys, as they hold it, so that results are to the bit those of one thread block.
#pragma once

#include "blocks/lazy_softmax.cuh"
#include "ptx/handover.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Of one of the `warps` consumer warps of a thread block; `columns` of O.
template <class Params, int columns, int warps, class Softmax>
struct UnfinishedTile {
  const Params& params;
  u32 own;                  // number of this warp, of those of all thread blocks...
  u32 before{own - warps};  // ... and of its like in the block before

  // A lane's first four floats of what a warp leaves, of eight columns of O; then those of the others, and of m and l.
  __device__ __forceinline__ float* partials(u32 warp) const {
    return params.partials + (warp * (columns / 8 + 1) * warp_size + lane_index()) * 4;
  }

  // Seen after a later signal, as who gives it waits for its own writes. 0 is that every lane has read its own.
  __device__ __forceinline__ void store_partials(const float (&O)[columns / 8][4], const Softmax& softmax) const {
    float* const first = partials(own);
#pragma unroll
    for (u32 i = 0; i < columns / 8; ++i) store_floats(first + i * warp_size * 4, O[i]);
    store_floats(first + columns / 8 * warp_size * 4, {softmax.m[0], softmax.m[1], softmax.l[0], softmax.l[1]});
  }
  __device__ __forceinline__ void signal(u32 warp, u64 word) const {
    warp_barrier();
    if (lane_index() == 0) announce_word(params.signals + warp, word);
  }

  // From the block before, once they are there.
  __device__ __forceinline__ void load_partials(float (&O)[columns / 8][4], Softmax& softmax) const {
    await_word(params.signals + before, params.launch);
    const float* const first = partials(before);
    float rows[4];
    load_floats(rows, first + columns / 8 * warp_size * 4);
    for (u32 i = 0; i < 4; ++i) (i < 2 ? softmax.m : softmax.l)[i % 2] = rows[i];
#pragma unroll
    for (u32 i = 0; i < columns / 8; ++i) load_floats(O[i], first + i * warp_size * 4);
    signal(before, 0);
  }
};
