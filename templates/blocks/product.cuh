// Products of tiles on the tensor cores, each operand in shared memory or in registers.
#pragma once

#include "blocks/softmax.cuh"
#include "blocks/tile.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/ldmatrix_transposed.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/mma.cuh"
#include "ptx/thread.cuh"
#include "types.h"

enum class Side { A, B };            // of a product A B
enum class Inner { columns, rows };  // of the tile, along which the product sums

// `pieces` of an operand in a tile, each 16 wide, every `apart`-th from `first` on.
template <Side side, Inner inner, class TileType, int pieces, int apart = 1>
struct TileOperand {
  static constexpr bool by_columns = inner == Inner::columns;

  TileType tile;
  u32 lane_address;
  u32 fragment[pieces][4];

  __device__ __forceinline__ TileOperand(const TileType& tile, u32 first)
      : tile(tile), lane_address(address(tile, by_columns ? first * 16 : 0, by_columns ? 0 : first * 2)) {}

  // Piece i of inner step `step`, of 16.
  __device__ __forceinline__ void load(int step, int i) {
    if constexpr (by_columns) {
      ldmatrix(fragment[i], tile.beyond(lane_address, i * apart * 16, step * 2));
    } else {
      ldmatrix_transposed(fragment[i], tile.beyond(lane_address, step * 16, i * apart * 2));
    }
  }

  __device__ __forceinline__ const u32 (&at(int /*step*/, int i) const)[4] { return fragment[i]; }

 private:
  // Of the 16 x 16 corner at (row, column_chunk): the two 8-row halves first, or the two 8-column halves.
  __device__ __forceinline__ static u32 address(const TileType& tile, u32 row, u32 column_chunk) {
    constexpr bool rows_first = (side == Side::A) == by_columns;
    const u32 lane = lane_index();
    const u32 in_half = lane % 8;
    const u32 first = lane / 8 % 2;
    const u32 second = lane / 16;
    return tile.at(row + in_half + (rows_first ? first : second) * 8, column_chunk + (rows_first ? second : first));
  }
};

// accumulator += a b over `steps` of 16. Each piece of b is loaded where it is multiplied: the compiler loads ahead as
// far as there are registers.
template <Dtype dtype, int steps, int row_tiles, int columns, class A, class B>
__device__ __forceinline__ void multiply(float (&accumulator)[row_tiles][columns][4], A& a, B& b) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) a.load(step, m);
#pragma unroll
    for (int n = 0; n < columns / 2; ++n) {
      b.load(step, n);
      const u32(&fragment)[4] = b.at(step, n);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        mma<dtype>(accumulator[m][2 * n], a.at(step, m), fragment[0], fragment[1]);
        mma<dtype>(accumulator[m][2 * n + 1], a.at(step, m), fragment[2], fragment[3]);
      }
    }
  }
}

// Packs a warp's accumulators into a tile whose rows from `first_row` on are theirs, and whose columns every `apart`-th
// piece of 16 from `first_piece` on. The rows of `factor` scale them.
template <Dtype dtype, int apart, int row_tiles, int columns, class TileType>
__device__ __forceinline__ void put_accumulators(const float (&accumulator)[row_tiles][columns][4], float factor,
                                                 const TileType& tile, u32 first_row, u32 first_piece) {
  const u32 lane = lane_index();
#pragma unroll
  for (u32 i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (u32 n = 0; n < columns; ++n) {
      const float(&from)[4] = accumulator[i][n];
      const u32 column_chunk = (first_piece + n / 2 * apart) * 2 + n % 2;
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        store_shared(tile.at(first_row + i * 16 + h * 8 + lane / 4, column_chunk) + lane % 4 * 4,
                     pack<dtype>(from[2 * h] * factor, from[2 * h + 1] * factor));
      }
    }
  }
}

// Accumulators as the A operand of the next product: where a warp has all of its inner dimension from its own
// registers, else from a tile to which all warps have brought theirs, behind a barrier.
template <bool shared, Dtype dtype, int row_tiles, int columns, class TileType, int steps>
struct ScoreOperand;

template <Dtype dtype, int row_tiles, int columns, class TileType, int steps>
struct ScoreOperand<false, dtype, row_tiles, columns, TileType, steps> : PackedP<dtype, row_tiles, steps> {
  __device__ __forceinline__ ScoreOperand(const float (&scores)[row_tiles][columns][4], const TileType& /*tile*/,
                                          u32 /*first_row*/, u32 /*first_piece*/)
      : PackedP<dtype, row_tiles, steps>(scores) {}
  __device__ __forceinline__ void load(int /*step*/, int /*i*/) {}
};

template <Dtype dtype, int row_tiles, int columns, class TileType, int steps>
struct ScoreOperand<true, dtype, row_tiles, columns, TileType, steps>
    : TileOperand<Side::A, Inner::columns, TileType, row_tiles> {
  __device__ __forceinline__ ScoreOperand(const float (&scores)[row_tiles][columns][4], const TileType& tile,
                                          u32 first_row, u32 first_piece)
      : TileOperand<Side::A, Inner::columns, TileType, row_tiles>(tile, first_row / 16) {
    put_accumulators<dtype, 1>(scores, 1.0f, tile, first_row, first_piece);
  }
};
