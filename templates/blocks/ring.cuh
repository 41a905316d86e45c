// Tiles in shared memory that one producer at a time fetches through the copy engine and consumer warps read, in turn.
// Each stage has an mbarrier that says it is full, which the bytes of its copies complete, and one that says it is
// empty, at which each of `readers` warps arrives. Producer and consumers each walk a Ring of their own.
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "types.h"

template <class Tile, int stages, int readers>
struct Ring {
  static constexpr u32 bytes = stages * Tile::bytes;
  static constexpr u32 barrier_bytes = 2 * stages * mbarrier_bytes;

  u32 tiles;     // shared address, as Tile wants it
  u32 barriers;  // and of the barriers, 8-byte aligned
  u32 stage = 0;
  u32 parity = 0;      // of the round
  bool there = false;  // the tile, as far as ask() knows

  // One thread, for all.
  __device__ __forceinline__ void create() const {
    for (u32 s = 0; s < stages; ++s) {
      mbarrier_init(barriers + s * mbarrier_bytes, 1);
      mbarrier_init(barriers + (stages + s) * mbarrier_bytes, readers);
    }
  }

  // Producer: waits for the stage and announces the tile, ...
  __device__ __forceinline__ void begin_load() const {
    mbarrier_wait(empty(), parity ^ 1);
    mbarrier_arrive_expect(full(), Tile::bytes);
  }
  // (in two steps, so that what is written between them is seen with the tile)
  __device__ __forceinline__ void claim() const { mbarrier_wait(empty(), parity ^ 1); }
  __device__ __forceinline__ void announce(u32 bytes = Tile::bytes) const { mbarrier_arrive_expect(full(), bytes); }
  // ... and fetches it: the rows from this box on.
  template <class Box>
  __device__ __forceinline__ void load(const AttuneTensorMap& map, const Box& from) {
    tile().load(map, full(), from);
    next();
  }

  // Consumers: until tile() is there. Who asks some time before need not wait for the answer.
  __device__ __forceinline__ void ask() { there = mbarrier_test(full(), parity); }
  __device__ __forceinline__ void wait() const {
    if (!there) mbarrier_wait(full(), parity);
  }
  __device__ __forceinline__ Tile tile() const { return {tiles + stage * Tile::bytes}; }

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
    there = false;
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }

  __device__ __forceinline__ u32 full() const { return barriers + stage * mbarrier_bytes; }
  __device__ __forceinline__ u32 empty() const { return barriers + (stages + stage) * mbarrier_bytes; }
};
