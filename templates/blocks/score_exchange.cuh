// How two warpgroups bring together the gradients of their scores, of which dQ needs all keys.
#pragma once

#include "blocks/gradient_stage.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "types.h"

// Two tiles take turns, so that a warpgroup may be a step ahead of the other. Before it puts the next ones, a warpgroup
// has read those that it waited for: who hears of the next ones knows that the other tile is free.
template <class Tile>
struct ScoreExchange {
  u32 tiles;      // shared address of the two
  u32 warpgroup;  // 0 or 1
  u32 first_row;  // of the tile, this warp's
  u32 next = 0;   // the tile that put() fills

  // A warpgroup's fragments become those of its rows.
  template <int steps>
  __device__ __forceinline__ void put(const u32 (&W)[steps][4]) {
    put_weights(Tile{tiles + next * Tile::bytes}, first_row, W);
    fence_for_copies();
    named_barrier_announce(barrier(next, warpgroup), 2 * warpgroup_size);
    next ^= 1;
  }

  // Until the other warpgroup has put those that this one put last.
  __device__ __forceinline__ Tile wait() const {
    named_barrier_wait(barrier(next ^ 1, warpgroup ^ 1), 2 * warpgroup_size);
    return {tiles + (next ^ 1) * Tile::bytes};
  }

 private:
  // One for each tile and warpgroup that fills it: 1 to 4.
  __device__ __forceinline__ static u32 barrier(u32 tile, u32 by) { return 1 + 2 * tile + by; }
};
