// Which tile of the problem a block computes.
#pragma once

#include "ptx/grid.cuh"
#include "types.h"

struct TileIndex {
  int batch;
  int head;
  int q_block;
  bool exists;  // the last group may have fewer heads than the grid is wide
};

// The grid is heads of a group x tiles of a head x groups of heads, and blocks start in that order. A group is as
// many (batch, head) pairs as share L2 well; within it the same tile of every head comes before the next tile, and
// `longest_first` starts with the last tile, which sees the most keys when causal, so that short ones fill the tail.
template <bool longest_first>
__device__ __forceinline__ TileIndex tile_index(u32 heads, u32 batches) {
  const uint3 block = block_index();
  const uint3 grid = grid_size();
  const u32 head = block.z * grid.x + block.x;
  const u32 batch = head / heads;
  return {static_cast<int>(batch), static_cast<int>(head - batch * heads),
          static_cast<int>(longest_first ? grid.y - 1 - block.y : block.y), batch < batches};
}
