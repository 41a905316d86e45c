// A tile that one thread block leaves and the next one goes on with: what the lanes of its warps hold between two
// blocks of keys, as they hold it, so that results are to the bit those of one thread block.
#pragma once

#include "blocks/lazy_softmax.cuh"
#include "ptx/handover.cuh"
#include "ptx/memory.cuh"
#include "ptx/thread.cuh"
#include "shared_tiles.h"
#include "types.h"

// One of the `warps` consumer warps of a thread block; `columns` of O.
template <int columns, int warps, class Softmax>
struct UnfinishedTile {
  const AttuneSharedPrefillParams& params;
  u32 warp;

  // Of this warp in a thread block; and its lane's i-th float.
  __device__ __forceinline__ u32 place(u32 block) const { return block * warps + warp; }
  __device__ __forceinline__ float* state(u32 block, u32 i) const {
    return params.states + ((place(block) * (columns / 2 + 4) + i) * warp_size + lane_index());
  }

  // For the next block, which is told later: who says so waits for its own writes.
  __device__ __forceinline__ void leave(const float (&O)[columns / 8][4], const Softmax& softmax) const {
#pragma unroll
    for (u32 i = 0; i < columns / 2; ++i) store_global(state(block_number(), i), O[i / 4][i % 4]);
    for (u32 i = 0; i < 4; ++i) {
      store_global(state(block_number(), columns / 2 + i), (i < 2 ? softmax.m : softmax.l)[i % 2]);
    }
  }
  __device__ __forceinline__ void say_so() const {
    warp_barrier();
    if (lane_index() == 0) announce_word(params.left + place(block_number()), params.launch);
  }

  // From the block before, once it is there.
  __device__ __forceinline__ void take(float (&O)[columns / 8][4], Softmax& softmax) const {
    await_word(params.left + place(block_number() - 1), params.launch);
    for (u32 i = 0; i < 4; ++i) {
      (i < 2 ? softmax.m : softmax.l)[i % 2] = load_global(state(block_number() - 1, columns / 2 + i));
    }
#pragma unroll
    for (u32 i = 0; i < columns / 2; ++i) O[i / 4][i % 4] = load_global(state(block_number() - 1, i));
    warp_barrier();  // the word stays while a lane waits for it
    if (lane_index() == 0) announce_word(params.left + place(block_number() - 1), 0);
  }
};
