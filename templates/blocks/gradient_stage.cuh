// What stands in shared memory for the backward pass on wgmma: queries with what is known of them, dS, dK and dV.
#pragma once

#include "blocks/panels.cuh"
#include "ptx/math.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

// A tile of Q and, behind it, LSE in base 2 and D of each row.
template <class QTile>
struct QueryStage {
  static constexpr u32 statistics_bytes = QTile::row_count * 2 * sizeof(float);
  static constexpr u32 copied_bytes = QTile::bytes + statistics_bytes;
  static constexpr u32 bytes = QTile::bytes + 1024;  // panels begin at multiples of that
  static_assert(statistics_bytes <= 1024);

  u32 base;

  __device__ __forceinline__ QTile Q() const { return {base}; }
  __device__ __forceinline__ u32 statistics() const { return base + QTile::bytes; }
};

// Accumulators become A of wgmma: two neighbouring tiles are a fragment.
template <Dtype dtype, int columns>
__device__ __forceinline__ void pack_weights(u32 (&W)[columns / 2][4], const float (&S)[columns][4],
                                             float factor = 1.0f) {
#pragma unroll
  for (int n = 0; n < columns; ++n) {
    W[n / 2][n % 2 * 2] = pack<dtype>(S[n][0] * factor, S[n][1] * factor);
    W[n / 2][n % 2 * 2 + 1] = pack<dtype>(S[n][2] * factor, S[n][3] * factor);
  }
}

// A warp's fragments to a tile's rows from `first_row` on.
template <class Tile, int steps>
__device__ __forceinline__ void put_weights(const Tile& tile, u32 first_row, const u32 (&W)[steps][4]) {
  const u32 corner = tile.chunk(first_row + lane_index() % 16, lane_index() / 16);
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    store_matrices((corner ^ static_cast<u32>(k % 4 * 32)) + static_cast<u32>(k / 4) * Tile::panel_bytes, W[k]);
  }
}

// How a warpgroup's 64 rows of a gradient leave: through a tile that nobody reads any more.
template <int tile_rows, int columns>
struct GradientStage {
  using Tile = Panels<tile_rows, columns>;

  u32 warp_row;  // in the tile
  u32 barrier;   // a named barrier of the warpgroup's own

  // The warpgroup: begins to write its rows, scaled, from this box on; what does not exist is left out.
  template <Dtype dtype, class Box>
  __device__ __forceinline__ void store(const float (&D)[columns / 8][4], float factor, const Tile& tile,
                                        const AttuneTensorMap& map, const Box& to) const {
    u32 W[columns / 16][4];
    pack_weights<dtype>(W, D, factor);
    put_weights(tile, warp_row, W);
    fence_for_copies();
    named_barrier_wait(barrier, warpgroup_size);
    if (warp_index() % 4 == 0 && elect_lane()) {
      const u32 from = tile.base + warp_row * Tile::row_bytes;
      for (int p = 0; p < Tile::count; ++p) to.store(map, from + p * Tile::panel_bytes, p * Tile::width);
      commit_boxes();
    }
  }

  // What was stored has been read: nothing is left in shared memory.
  __device__ __forceinline__ void finish() const {
    if (warp_index() % 4 == 0 && elect_lane()) wait_boxes_read();
  }
};

// A warp's fragments to a tile's rows from `first_row` on, and to its columns from the `first_step`-th 16 on.
template <class Tile, int steps>
__device__ __forceinline__ void put_part(const Tile& tile, u32 first_row, u32 first_step, const u32 (&W)[steps][4]) {
#pragma unroll
  for (u32 k = 0; k < steps; ++k) {
    store_matrices(tile.chunk(first_row + lane_index() % 16, (first_step + k) * 2 + lane_index() / 16), W[k]);
  }
}

// How the gradients of keys leave that two warpgroups share, each half of the columns: through tiles that nobody reads
// any more.
template <int tile_rows, int columns>
struct SharedGradientStage {
  using Tile = Panels<tile_rows, columns>;

  u32 warp_row;   // in the tile
  u32 warpgroup;  // of two
  u32 barrier;    // a named barrier of both

  // A warpgroup: its columns of a gradient, scaled.
  template <Dtype dtype, int pieces>
  __device__ __forceinline__ void put(const float (&D)[pieces][4], float factor, const Tile& tile) const {
    u32 W[pieces / 2][4];
    pack_weights<dtype>(W, D, factor);
    put_part(tile, warp_row, warpgroup * (pieces / 2), W);
  }

  // Both, behind their columns of two gradients: each writes one of these from this box on; what does not exist is left
  // out. Then nothing is left in shared memory.
  template <class Box>
  __device__ __forceinline__ void store(const Tile& tile, const AttuneTensorMap& map, const Box& to) const {
    fence_for_copies();
    named_barrier_wait(barrier, 2 * warpgroup_size);
    if (warp_index() % 4 == 0 && elect_lane()) {
      for (int p = 0; p < Tile::count; ++p) to.store(map, tile.base + p * Tile::panel_bytes, p * Tile::width);
      commit_boxes();
      wait_boxes_read();
    }
  }
};
