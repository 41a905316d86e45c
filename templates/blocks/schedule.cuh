// Which tile of the problem a block computes.
#pragma once

#include "types.h"

struct TileIndex {
  int batch;
  int head;
  int q_block;
};

// Blocks start in the order of their index. Heads go in groups whose K and V fit L2 together; within a group the
// same tile of every head comes before the next tile, and `longest_first` starts with the last tile, which sees the
// most keys when causal, so that the short ones fill the tail.
template <bool longest_first>
__device__ __forceinline__ TileIndex tile_index(i64 block, int q_blocks, int heads, int batches, int heads_per_group) {
  const i64 group_blocks = static_cast<i64>(q_blocks) * heads_per_group;
  const int group = static_cast<int>(block / group_blocks);
  const int in_group = static_cast<int>(block - group * group_blocks);
  const i64 heads_left = static_cast<i64>(heads) * batches - static_cast<i64>(group) * heads_per_group;
  const int group_heads = heads_left < heads_per_group ? static_cast<int>(heads_left) : heads_per_group;
  const int q_block = in_group / group_heads;
  const int head = group * heads_per_group + in_group - q_block * group_heads;
  return {head / heads, head % heads, longest_first ? q_blocks - 1 - q_block : q_block};
}
