// Stages in shared memory that one producer thread fills through the copy engine and consumer warps empty, in turn.
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Each stage has an mbarrier that says it is full, which the bytes of its copies complete, and one that says it is
// empty, at which each of `readers` warps arrives. Producer and consumers each walk a Ring of their own.
template <int stages, int readers>
struct Ring {
  static constexpr u32 bytes = 2 * stages * mbarrier_bytes;

  u32 barriers;
  u32 stage = 0;
  u32 parity = 0;  // of the round

  __device__ __forceinline__ explicit Ring(u32 address) : barriers(address) {}

  // One thread, for all.
  __device__ __forceinline__ void create() const {
#pragma unroll
    for (u32 s = 0; s < stages; ++s) {
      mbarrier_init(barriers + s * mbarrier_bytes, 1);
      mbarrier_init(barriers + (stages + s) * mbarrier_bytes, readers);
    }
  }

  // Producer: waits for the stage and announces the bytes; the copies then name full().
  __device__ __forceinline__ void begin_fill(u32 fill_bytes) const {
    mbarrier_wait(empty(), parity ^ 1);
    mbarrier_arrive_expect(full(), fill_bytes);
  }

  // Consumers.
  __device__ __forceinline__ void wait() const { mbarrier_wait(full(), parity); }

  // Consumers: this warp has read the stage, where `done`, which is the same in all lanes. One condition for both, or
  // ptxas takes the lanes to have parted.
  __device__ __forceinline__ void release(bool done = true) const {
    if (done && lane_index() == 0) mbarrier_arrive(empty());
  }

  // Consumers: this warp reads nothing of the stage.
  __device__ __forceinline__ void skip() {
    wait();
    release();
    next();
  }

  __device__ __forceinline__ void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }

  __device__ __forceinline__ u32 full() const { return barriers + stage * mbarrier_bytes; }
  __device__ __forceinline__ u32 empty() const { return barriers + (stages + stage) * mbarrier_bytes; }
};
