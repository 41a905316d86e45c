// How a persistent kernel's tiles are grouped, so that multiprocessors finish together and L2 serves them.
#pragma once

#include "templates/tile_list.h"

namespace attune {

/// The tiles of a launch as templates/blocks/tile_order.cuh walks them.
struct TileWork {
  int q_blocks;        ///< tiles of a head
  int heads;           ///< (batch, head) pairs
  int gqa_ratio;       ///< neighbouring heads that share keys and values
  int B_r;             ///< rows of a tile
  int rows_per_query;  ///< 1, or the heads that pack_gqa packs
  int B_c;             ///< keys of a block
  int seqlen_q;
  int seqlen_k;
  bool causal;
  bool listed = false;       ///< given to whoever is free first (tile_list), rather than taken in rounds
  int multiprocessors;       ///< blocks that stay
  long long bytes_per_head;  ///< of keys and values, each head's share
  long long l2_bytes;
  bool operator==(const TileWork&) const = default;
};

/// The blocks of keys that the busiest multiprocessor walks, over the mean, when groups have `group_heads` heads. A
/// tile counts one block more than it reads: its beginning and its end.
double imbalance(const TileWork& work, int group_heads);

/// The number of heads in a group that costs least: imbalance, and reading keys and values from memory rather than L2.
/// Takes some 50 us for thousands of tiles: for once a problem, not once a launch.
int choose_group_heads(const TileWork& work);

/// Each multiprocessor's tiles, when those of groups of `group_heads` heads, longest first, go one by one to whoever is
/// free first (Graham's list scheduling). Of at most AttuneTileList::most_tiles tiles on most_blocks multiprocessors.
AttuneTileList list_tiles(const TileWork& work, int group_heads);

}  // namespace attune
