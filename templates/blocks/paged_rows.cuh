// The rows of a batch whose keys lie in pages. How many keys a sequence has only the device knows, so that one warp
// finds the tiles for all, as those of a ragged batch.
#pragma once

#include "blocks/ragged_rows.cuh"
#include "blocks/shared_order.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/lanes.cuh"
#include "ptx/thread.cuh"
#include "shared_tiles.h"
#include "tensor_params.h"
#include "types.h"

// As `Rows`, of sequences with as many queries, but with keys of their own number.
template <class Rows>
struct PagedRows : Rows {
  using KeyMask = typename Rows::KeyMask;

  template <class Tile>
  __device__ __forceinline__ static KeyMask mask(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return KeyMask::of(params, params.seqlen_q, tile.keys.count);
  }
};

// The tiles of `Order`, with the blocks of keys that their own sequence has.
template <class Order, class Rows, int B_r, int B_c>
struct PagedOrder {
  const AttuneTensorPrefillParams& params;
  Order order;

  template <class Params>
  __device__ __forceinline__ explicit PagedOrder(const Params& params) : params(params), order(params) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    if (!order.next(tile)) return false;
    tile.find_rows(params);
    find_blocks<B_r, B_c>(Rows::mask(params, tile), tile);
    return true;
  }
};

// Shares of the last tiles where their sequences have as many blocks of keys, which the device alone knows; else all
// tiles are whole, as a tile is passed on once.
struct FoundShares {
  int whole;
  int each;
  int longer;

  __device__ __forceinline__ int whole_tiles() const { return whole; }
  __device__ __forceinline__ int share() const { return each; }
  __device__ __forceinline__ int longer_shares() const { return longer; }
};

// The tiles of SharedOrder, with the blocks of keys that their own sequence has. All lanes of a warp together.
template <class Rows, int B_r, int B_c>
struct PagedSharedOrder {
  using Order = SharedOrder<Rows, B_r, B_c, FoundShares>;

  const AttuneTensorPrefillParams& params;
  Order order;

  __device__ __forceinline__ explicit PagedSharedOrder(const AttuneSharedPrefillParams& params)
      : PagedSharedOrder(params, blocks_of_shared(params)) {}

  // Finds this block's next tile, the same in all lanes; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    if (!order.next(tile)) return false;
    tile.find_rows(params);
    if (!tile.begun && !tile.left) find_blocks<B_r, B_c>(Rows::mask(params, tile), tile);
    return true;
  }

 private:
  // `tile_blocks` of keys has each tile that may be shared; 0: not all have as many.
  __device__ __forceinline__ PagedSharedOrder(const AttuneSharedPrefillParams& params, int tile_blocks)
      : params(params), order(params, found(params, tile_blocks), tile_blocks > 0 ? tile_blocks : 1) {}

  __device__ __forceinline__ static int tiles_of_sequence(const AttuneTensorPrefillParams& params) {
    return params.q_blocks * Rows::heads(params);
  }

  __device__ __forceinline__ static FoundShares found(const AttuneSharedPrefillParams& params, int tile_blocks) {
    const int tiles = params.batch * tiles_of_sequence(params);
    if (tile_blocks == 0) return {tiles, 0, 0};
    const int blocks = static_cast<int>(block_count());
    const int all = (tiles - params.whole_tiles) * tile_blocks;
    return {params.whole_tiles, all / blocks, all % blocks};
  }

  // Of keys, of each of the sequences whose tiles are not all whole.
  __device__ __forceinline__ static int blocks_of_shared(const AttuneSharedPrefillParams& params) {
    int least = params.seqlen_k;
    int most = 0;
#pragma unroll 1
    for (int b = params.whole_tiles / tiles_of_sequence(params) + static_cast<int>(lane_index()); b < params.batch;
         b += warp_size) {
      PagedTile<QueryTile> rows{};
      rows.batch = b;
      rows.find_rows(params);
      const int blocks = blocks_seen<B_c>(Rows::mask(params, rows), 0);
      least = blocks < least ? blocks : least;
      most = blocks > most ? blocks : most;
    }
    most = greatest_of_lanes(most);
    return most == least_of_lanes(least) ? most : 0;
  }
};
