// The order of tiles of which only the device knows how long they take, as a mask that looks things up hides more of
// some.
#pragma once

#include "blocks/tile_order.cuh"
#include "expressed_tensor_params.h"
#include "ptx/counter.cuh"
#include "ptx/lanes.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// RoundOrder's tiles one by one, each for the block that asks first; in rounds where nothing counts them. All lanes of
// a warp together.
template <class Rows, int B_r, int B_c>
struct DrawnOrder {
  RoundOrder<Rows, B_r, B_c> rounds;
  int* drawn;

  __device__ __forceinline__ explicit DrawnOrder(const AttuneExpressedTensorParams& params)
      : rounds(params), drawn(params.blocks.drawn) {}

  // Finds this block's next tile, the same in all lanes; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    int index = 0;
    if (drawn == nullptr) {
      const int blocks = static_cast<int>(block_count());
      const int own = static_cast<int>(block_number());
      index = rounds.round * blocks + (rounds.round % 2 == 0 ? own : blocks - 1 - own);
      ++rounds.round;
    } else if (lane_index() == 0) {
      index = count_global(drawn);
    }
    index = uniform(index);
    if (index >= rounds.params.q_blocks * rounds.heads) return false;
    rounds.find(index, tile);
    return true;
  }
};
