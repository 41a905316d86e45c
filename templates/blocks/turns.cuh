// Consumer warpgroups that issue their products one after the other, so that one's softmax runs beside the other's
// products (FlashAttention-3, arXiv 2407.08608, "ping-pong"). Warpgroup i waits at barrier 1 + i, which the one before
// it opens. Every warpgroup takes the same number of turns.
#pragma once

#include "ptx/warpgroup.cuh"
#include "types.h"

template <int warpgroups>
struct Turns {
  static constexpr u32 threads = 2 * warpgroup_size;  // those that wait and those that open

  u32 warpgroup;

  // As if the last had just passed the turn on to the first.
  __device__ __forceinline__ void begin() const {
    if (warpgroup == warpgroups - 1) named_barrier_announce(1, threads);
  }
  __device__ __forceinline__ void take() const { named_barrier_wait(1 + warpgroup, threads); }
  __device__ __forceinline__ void pass() const { named_barrier_announce(1 + (warpgroup + 1) % warpgroups, threads); }
  // The last turn that was passed on is taken, so that no barrier is left half full.
  __device__ __forceinline__ void end() const {
    if (warpgroup == 0) named_barrier_wait(1, threads);
  }
};
