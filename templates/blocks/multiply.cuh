// Products of tiles on the tensor cores, operands streamed from shared memory as mma fragments.
#pragma once

#include "blocks/tile.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/ldmatrix_transposed.cuh"
#include "ptx/mma.cuh"
#include "types.h"

// The fragments of one operand along the product's inner dimension of `tiles` steps of 16. `step` of them are
// loaded at a time (all of them: step == tiles), and with two buffers the next ones before the current are used.
// `across` is how many 16-wide pieces the outer dimension has. `inner_is_columns`: the inner dimension runs along
// the tile's columns (Q, K) or down its rows (V, read transposed).
template <class TileType, int tiles, int across, int step, bool buffered, bool inner_is_columns>
struct FragmentStream {
  static constexpr int buffers = buffered && step < tiles ? 2 : 1;
  static_assert(tiles % step == 0);

  u32 fragment[buffers][step][across][4];

  // Before the first inner step.
  __device__ __forceinline__ void begin(const TileType& tile, u32 lane_address) {
    if constexpr (buffers == 2) load(tile, lane_address, 0);
  }

  // Before inner step `inner`: loads what that step, or with two buffers the next batch, needs.
  __device__ __forceinline__ void advance(const TileType& tile, u32 lane_address, int inner) {
    if (inner % step != 0) return;
    const int batch = inner / step + (buffers - 1);
    if (batch * step < tiles) load(tile, lane_address, batch);
  }

  __device__ __forceinline__ const u32 (&at(int inner, int a) const)[4] {
    return fragment[inner / step % buffers][inner % step][a];
  }

 private:
  __device__ __forceinline__ void load(const TileType& tile, u32 lane_address, int batch) {
#pragma unroll
    for (int s = 0; s < step; ++s) {
      const int inner = batch * step + s;
#pragma unroll
      for (int a = 0; a < across; ++a) {
        const u32 address = inner_is_columns ? tile.beyond(lane_address, a * 16, inner * 2)
                                             : tile.beyond(lane_address, inner * 16, a * 2);
        u32(&words)[4] = fragment[batch % buffers][s][a];
        if constexpr (inner_is_columns) {
          ldmatrix(words, address);
        } else {
          ldmatrix_transposed(words, address);
        }
      }
    }
  }
};

// One inner step: accumulators (16 rows x 8 columns each) += a x b for every pair of outer pieces.
template <Dtype dtype, int row_tiles, int columns, class A, class B>
__device__ __forceinline__ void multiply_step(float (&accumulator)[row_tiles][columns][4], const A& a, const B& b,
                                              int inner) {
#pragma unroll
  for (int n = 0; n < columns / 2; ++n) {
    const u32(&fragment)[4] = b.at(inner, n);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      mma<dtype>(accumulator[m][2 * n], a.at(inner, m), fragment[0], fragment[1]);
      mma<dtype>(accumulator[m][2 * n + 1], a.at(inner, m), fragment[2], fragment[3]);
    }
  }
}
