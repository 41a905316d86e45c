// How sums of dQ leave a thread block, and in which order blocks add theirs.
#pragma once

#include "backward_params.h"
#include "blocks/pair_mask.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/floats.cuh"
#include "ptx/handover.cuh"
#include "ptx/lanes.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "types.h"

// A place in shared memory for the sums of one step, in the workspace's order (dq_sums.cuh), to which `writers` threads
// bring them and from which a warp adds them to memory: one of `adders`, which take turns.
template <int floats, int writers, int adders = 1>
struct GradientSums {
  static constexpr u32 bytes = floats * sizeof(float);
  static constexpr u32 part_bytes = 16 * 8 * sizeof(float);  // of a piece of 16 rows and 8 columns
  static constexpr u32 full = 2;                             // named barriers, one for each who adds
  static constexpr u32 free = full + adders;
  static constexpr u32 next_barrier = free + adders;

  u32 base;

  // Writers: until that one has read the sums before; and theirs for another, a warp's pieces from there on.
  __device__ __forceinline__ void wait_free(u32 adder = 0) const {
    named_barrier_wait(free + adder, writers + warp_size);
  }
  template <int pieces>
  __device__ __forceinline__ void put(const float (&dQ)[pieces][4], u32 first, u32 adder = 0) const {
#pragma unroll
    for (u32 n = 0; n < pieces; ++n) {
      store_shared(base + first + n * part_bytes + lane_index() * sizeof(Float4),
                   Float4{{dQ[n][0], dQ[n][1], dQ[n][2], dQ[n][3]}});
    }
    fence_for_copies();
    named_barrier_announce(full + adder, writers + warp_size);
  }

  // A warp that adds: until they are there; one lane adds them, in a group of its own; and when they have been read.
  __device__ __forceinline__ void wait_full(u32 adder = 0) const {
    named_barrier_wait(full + adder, writers + warp_size);
  }
  __device__ __forceinline__ void add(float* sums) const {
    add_bytes(sums, base, bytes);
    commit_boxes();
  }
  __device__ __forceinline__ void announce_free(u32 adder = 0) const {
    named_barrier_announce(free + adder, writers + warp_size);
  }
};

// Where the sums of a step leave in two halves, one after the other through a place for one of them: of each warp's
// `pieces`, which the workspace has side by side, the first half, then the second, each added by a warp of its own.
template <int writing_warps, int pieces, int writers>
struct HalvedSums : GradientSums<writing_warps*(pieces / 2) * 16 * 8, writers, 2> {
  static constexpr int warps = writing_warps;
  static constexpr int half_pieces = pieces / 2;
  static_assert(pieces % 2 == 0);
};

// Writers: this half of a warp's pieces; in a place for both they would begin at `first`.
template <int half, class Stage, int pieces>
__device__ __forceinline__ void put_half(const Stage& stage, const float (&dQ)[pieces][4], u32 first) {
  float halved[pieces / 2][4];
#pragma unroll
  for (int n = 0; n < pieces / 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) halved[n][e] = dQ[half * (pieces / 2) + n][e];
  }
  stage.put(halved, first / 2, half);
}

// The thread that adds: this half, in a group of its own.
template <class Stage>
__device__ __forceinline__ void add_half(const Stage& stage, float* sums, int half) {
  constexpr u32 bytes = Stage::half_pieces * Stage::part_bytes;
#pragma unroll 1  // addresses of all are more than the registers of a warp that does not multiply
  for (int warp = 0; warp < Stage::warps; ++warp) {
    add_bytes(sums + (2 * warp + half) * (Stage::half_pieces * 16 * 8), stage.base + static_cast<u32>(warp) * bytes,
              bytes);
  }
  commit_boxes();
}

// When a block of keys may add to the sums of a block of queries: behind all blocks of later keys that these queries
// see. A word of the workspace says who has added last: so many blocks, counted from `launch`; 0 when all have. Where
// sums leave in `parts`, each has a word of its own.
template <int B_r, int B_c, int parts = 1>
struct GradientTurn {
  u64* place;
  u64 launch;
  int before;    // blocks that add earlier
  bool is_last;  // no block adds later

  // `row` is the first of these queries in the workspace.
  template <class Mask>
  __device__ __forceinline__ GradientTurn(const AttuneBackwardParams& params, const Mask& mask, i64 row,
                                          int query_block, int key_block, u32 part = 0)
      : place(params.turns + row / B_r * parts + part), launch(params.launch) {
    const int first_query = query_block * B_r;
    before = (mask.key_limit(first_query + B_r - 1) - 1) / B_c - key_block;
    is_last = key_block == 0 || mask.query_limit(key_block * B_c - 1) <= first_query;
  }

  // Counts those alone that a mask's expression leaves these queries (blocks/live_queries.cuh): all lanes of the warp,
  // each its share of them.
  template <class Mask, class Queries>
  __device__ __forceinline__ void count_live(const Mask& mask, const Queries& live, int head, int query_block,
                                             int key_block) {
    const int last = key_block + before;
    int later = 0;
    int earlier = 0;
    for (int block = static_cast<int>(lane_index()); block <= last; block += warp_size) {
      if (block == key_block || !live.shows(head, query_block, block * B_c)) continue;
      if (block > key_block) {
        ++later;
      } else if (mask.query_limit(block * B_c + B_c - 1) > query_block * B_r) {
        ++earlier;
      }
    }
    before = sum_of_lanes(later);
    is_last = sum_of_lanes(earlier) == 0;
  }

  // All lanes of the warp.
  __device__ __forceinline__ void wait() const {
    if (before > 0) await_word(place, launch + static_cast<u64>(before));
    warp_barrier();  // who passes the turn on does so behind all lanes' waits
  }
  // The thread that adds, once its sums are in memory.
  __device__ __forceinline__ void pass() const {
    wait_boxes();
    announce_word(place, is_last ? 0 : launch + static_cast<u64>(before) + 1);
  }
};

// The same where any order will do.
struct AnyTurn {
  template <class Mask>
  __device__ __forceinline__ AnyTurn(const AttuneBackwardParams& /*params*/, const Mask& /*mask*/, i64 /*row*/,
                                     int /*query_block*/, int /*key_block*/, u32 /*part*/ = 0) {}
  __device__ __forceinline__ void wait() const {}
  __device__ __forceinline__ void pass() const {}
};
