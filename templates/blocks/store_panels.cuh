// Where a warpgroup lays out its 64 rows of O, some panels at a time, for the copy engine to fetch while it goes on.
#pragma once

#include "blocks/panels.cuh"
#include "ptx/math.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "types.h"

template <int columns>
struct OutputStage {
  static constexpr int rows = 64;
  static constexpr int panels = (columns + 63) / 64;
  static constexpr int panels_at_once = panels % 2 == 0 ? 2 : 1;
  using Pass = Panels<rows, panels_at_once * 64>;
  static constexpr u32 bytes = Pass::bytes;

  u32 base;     // shared address, 1024-byte aligned
  u32 barrier;  // a named barrier of the warpgroup's own

  // The warpgroup: begins to write O, scaled by `factor`, to the rows from these coordinates on. Rows and columns that
  // do not exist are left out.
  template <Dtype dtype>
  __device__ __forceinline__ void store(const float (&O)[columns / 8][4], const float (&factor)[2],
                                        const AttuneTensorMap& map, int y, int z, int w) const {
    const u32 lane = lane_index();
    const u32 own_row = warp_index() % 4 * 16 + lane % 16;
#pragma unroll
    for (int first = 0; first < panels; first += panels_at_once) {
      finish();
      named_barrier_wait(barrier, warpgroup_size);
#pragma unroll
      for (int c = 0; c < panels_at_once * 8 && first * 8 + c < columns / 8; c += 2) {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&tile)[4] = O[first * 8 + c + i / 2];
          word[i] = pack<dtype>(tile[i % 2 * 2] * factor[i % 2], tile[i % 2 * 2 + 1] * factor[i % 2]);
        }
        const u32 swizzled = (c % 8 + lane / 16) ^ own_row % 8;  // which 16 bytes of the panel's row
        store_matrices(base + c / 8 * Pass::panel_bytes + own_row * Pass::row_bytes + swizzled * 16, word);
      }
      fence_for_copies();
      named_barrier_wait(barrier, warpgroup_size);
      if (elected()) {
#pragma unroll
        for (int p = 0; p < panels_at_once; ++p) {
          store_box(map, base + p * Pass::panel_bytes, (first + p) * 64, y, z, w);
        }
        commit_boxes();
      }
    }
  }

  // The stage has been read: of O that has been stored nothing is left in shared memory.
  __device__ __forceinline__ void finish() const {
    if (elected()) wait_boxes_read();
  }

 private:
  __device__ __forceinline__ static bool elected() { return thread_index() % warpgroup_size == 0; }
};
