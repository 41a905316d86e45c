// Which block of keys a stage of K has, where a mask leaves some out: who fetches it says so, and who multiplies need
// not look for what comes next.
#pragma once

#include "ptx/lanes.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// A word in shared memory, which the stage's mbarriers order as they do the stage.
struct KeyBlock {
  static constexpr u32 bytes = 4;

  u32 address;

  // One thread, between claiming the stage and announcing it. `full`: it is known that every row of the tile sees every
  // key of the block.
  __device__ __forceinline__ void write(int block, bool full) const {
    store_shared(address, static_cast<u32>(block) * 2 + (full ? 1 : 0));
  }

  // A warp that has waited for the stage: the word, the same in all lanes, and what it says.
  __device__ __forceinline__ u32 read() const {
    const u32 word = load_shared_word(address);
    warp_barrier();  // lane 0 releases the stage, and the word with it, for all
    return static_cast<u32>(uniform(static_cast<int>(word)));
  }
  __device__ __forceinline__ static int number(u32 word) { return static_cast<int>(word / 2); }
  __device__ __forceinline__ static bool is_full(u32 word) { return word % 2 != 0; }
};
