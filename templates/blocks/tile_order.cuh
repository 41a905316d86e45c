// Which tiles a block computes that stays for many, one after the other.
#pragma once

#include "blocks/divisor.cuh"
#include "blocks/mask.cuh"
#include "ptx/thread.cuh"
#include "tensor_params.h"
#include "types.h"

// A tile, and the blocks of keys that it reads: from first_block on, below `blocks`, at least one.
struct QueryTile {
  int batch;
  int head;
  int first_row;
  int blocks;
  static constexpr int first_block = 0;
  static constexpr bool begun = false;  // by another thread block, ...
  static constexpr bool left = false;   // ... or to one
};

struct WindowTile : QueryTile {
  int first_block;
};

// And what mask_blocks has found of its last block and those beside it (blocks/told_blocks.cuh).
struct ToldTile : WindowTile {
  int word;
  u32 live;
  u32 full;
};

// Blocks of keys up to the last one that `row` sees, of those of its sequence.
template <int B_c, class KeyMask>
__device__ __forceinline__ int blocks_seen(const KeyMask& mask, int row) {
  const int blocks = blocks_reaching(mask.limit(row), B_c);
  return blocks > 0 ? blocks : 1;
}

// Which blocks of keys its rows see.
template <int B_r, int B_c, class KeyMask, class Tile>
__device__ __forceinline__ void find_blocks(const KeyMask& mask, Tile& tile) {
  tile.blocks = blocks_seen<B_c>(mask, tile.first_row + B_r - 1);
  if constexpr (variant::window) {
    tile.first_block = first_block_seen(mask, tile.first_row, B_c);
  } else if constexpr (variant::mask) {
    tile.first_block = 0;
  }
}

// Tiles are ordered by groups of heads whose keys and values share L2; inside a group the same tile of every head comes
// before the next, the longest first when causal. Blocks take them in rounds, every other round in reverse, so that who
// began with the longest tile ends with the shortest.
template <class Rows, int B_r, int B_c>
struct RoundOrder {
  const AttuneTensorPrefillParams& params;
  int heads;                 // of all sequences
  Divisor group_tiles;       // tiles of a whole group
  Divisor group_heads;       // heads of a whole group
  Divisor last_group_heads;  // and of the last
  Divisor sequence_heads;
  int round = 0;

  __device__ __forceinline__ explicit RoundOrder(const AttuneTensorPrefillParams& params)
      : params(params),
        heads(params.batch * Rows::heads(params)),
        group_tiles(params.group_heads * params.q_blocks),
        group_heads(params.group_heads),
        last_group_heads((heads - 1) % params.group_heads + 1),
        sequence_heads(Rows::heads(params)) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    const int blocks = static_cast<int>(block_count());
    const int own = static_cast<int>(block_number());
    const int index = round * blocks + (round % 2 == 0 ? own : blocks - 1 - own);
    ++round;
    if (index >= params.q_blocks * heads) return false;
    find(index, tile);
    return true;
  }

  // Finds the tile of this number, below params.q_blocks * heads.
  template <class Tile>
  __device__ __forceinline__ void find(int index, Tile& tile) const {
    int place;
    const int first_head = group_tiles.divide(index, place) * params.group_heads;
    const bool last = first_head + params.group_heads > heads;
    int head;
    int q_block = last ? last_group_heads.divide(place, head) : group_heads.divide(place, head);
    // Later rows see more keys of the causal mask, and may of another.
    if constexpr (variant::causal || variant::mask) q_block = params.q_blocks - 1 - q_block;
    tile.batch = sequence_heads.divide(first_head + head, tile.head);
    tile.first_row = q_block * B_r;
    find_blocks<B_r, B_c>(Rows::mask_of_longest(params), tile);
  }
};
