// The tiles of a block in the order of a list that the host made.
#pragma once

#include "blocks/divisor.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/thread.cuh"
#include "tile_list.h"
#include "types.h"

template <class Rows, int B_r, int B_c>
struct ListOrder {
  const AttuneListedPrefillParams& params;
  Divisor head_tiles;
  Divisor sequence_heads;
  int place;  // in the list

  __device__ __forceinline__ explicit ListOrder(const AttuneListedPrefillParams& params)
      : params(params),
        head_tiles(params.q_blocks),
        sequence_heads(Rows::heads(params)),
        place(params.list.first[block_number()]) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    if (place >= params.list.first[block_number() + 1]) return false;
    int q_block;
    const int head = head_tiles.divide(params.list.tiles[place++], q_block);
    tile.batch = sequence_heads.divide(head, tile.head);
    tile.first_row = q_block * B_r;
    find_blocks<B_r, B_c>(Rows::mask_of_longest(params), tile);
    return true;
  }
};
