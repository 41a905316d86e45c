// Rounds of whole tiles, and shares of the last ones, which would not fill a round (Stream-K, arXiv 2301.03598): each
// block walks a run of their keys from its end. So a tile that two share is begun by the lower one before all else, and
// ended by the other last of all.
#pragma once

#include "blocks/divisor.cuh"
#include "blocks/mask.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/thread.cuh"
#include "shared_tiles.h"
#include "types.h"

struct SharedTile : QueryTile {
  int first_block;  // those before it, which `blocks` counts too, ...
  bool left;        // ... are left to the next thread block
  bool begun;       // by the thread block before, which has read those from `blocks` on
};

// Which tiles are whole, and what each block gets of the others, as the host knows it.
struct GivenShares {
  const AttuneSharedPrefillParams& params;

  __device__ __forceinline__ int whole_tiles() const { return params.whole_tiles; }
  __device__ __forceinline__ int share() const { return params.share; }
  __device__ __forceinline__ int longer_shares() const { return params.longer_shares; }
};

// `Shares` as above.
template <class Rows, int B_r, int B_c, class Shares>
struct SharedOrder {
  Shares shares;
  Divisor head_tiles;
  Divisor sequence_heads;
  Divisor key_blocks;  // of a tile
  int place;           // of this block's next whole tile
  int run_begin;       // what is left of its run, in blocks of keys
  int run_end;

  __device__ __forceinline__ explicit SharedOrder(const AttuneSharedPrefillParams& params)
      : SharedOrder(params, GivenShares{params}, blocks_reaching(params.seqlen_k, B_c)) {}

  // `tile_blocks` of keys has each tile that is shared.
  __device__ __forceinline__ SharedOrder(const AttuneTensorPrefillParams& params, const Shares& shares, int tile_blocks)
      : shares(shares),
        head_tiles(params.q_blocks),
        sequence_heads(Rows::heads(params)),
        key_blocks(tile_blocks),
        place(static_cast<int>(block_number())),
        run_begin(place * shares.share() + (place < shares.longer_shares() ? place : shares.longer_shares())),
        run_end(run_begin + shares.share() + (place < shares.longer_shares() ? 1 : 0)) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    const int all = static_cast<int>(key_blocks.value);
    int index = place;
    int begin = 0;  // of those of the tile's blocks of keys that are this block's, in the order in which they are read
    int end = all;
    if (index < shares.whole_tiles()) {
      place += static_cast<int>(block_count());
    } else {
      if (run_end == run_begin) return false;
      index = shares.whole_tiles() + key_blocks.divide(run_end - 1, end);
      ++end;
      begin = run_end - run_begin < end ? end - (run_end - run_begin) : 0;
      run_end -= end - begin;
    }
    tile.first_block = all - end;
    tile.blocks = all - begin;
    tile.left = tile.first_block != 0;
    tile.begun = begin > 0;
    int q_block;
    tile.batch = sequence_heads.divide(head_tiles.divide(index, q_block), tile.head);
    tile.first_row = q_block * B_r;
    return true;
  }
};
