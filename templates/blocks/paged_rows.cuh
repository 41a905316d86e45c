// The rows of a batch whose keys lie in pages. How many keys a sequence has only the device knows, so that one warp
// finds the tiles for all, as those of a ragged batch.
#pragma once

#include "blocks/tile_order.cuh"
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
