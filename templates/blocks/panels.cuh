// A tile as the copy engine leaves it and wgmma reads it: panels of 64 columns side by side, 128 bytes a row, swizzled.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

template <int rows, int columns>
struct Panels {
  static constexpr int width = 64;  // columns of a panel
  static constexpr int row_bytes = 2 * width;
  static constexpr int count = (columns + width - 1) / width;
  static constexpr int row_count = rows;
  static constexpr u32 panel_bytes = rows * row_bytes;
  static constexpr u32 bytes = count * panel_bytes;
  static_assert(rows % 8 == 0 && rows <= 256 && columns % 16 == 0);

  u32 base;  // shared address, 1024-byte aligned

  // One thread: fetches the rows from this box on; their bytes count at the mbarrier.
  template <class Box>
  __device__ __forceinline__ void load(const AttuneTensorMap& map, u32 barrier, const Box& from) const {
    for (int p = 0; p < count; ++p) from.load(base + p * panel_bytes, map, barrier, p * width);
  }

  // The tile without its first rows, a multiple of 8.
  __device__ __forceinline__ Panels rows_from(int row) const { return {base + static_cast<u32>(row) * row_bytes}; }

  // The rows from `row` (a multiple of 8) on, for products along the columns; advanced by `columns_right`.
  __device__ __forceinline__ u64 descriptor(int row) const {
    return matrix_descriptor(base + static_cast<u32>(row) * row_bytes, panel_bytes);
  }
  // One panel and those behind it, for products along the rows; advanced by `rows_down`.
  __device__ __forceinline__ u64 panel(u32 number) const {
    return matrix_descriptor(base + number * panel_bytes, panel_bytes);
  }
  // Shared address of eight columns of a row, the swizzle included.
  __device__ __forceinline__ u32 chunk(u32 row, u32 eighth) const {
    return base + eighth / 8 * panel_bytes + row * row_bytes + (eighth ^ row) % 8 * 16;
  }
  // Added to a descriptor: 16 columns further, or 16 rows, `step` times.
  __device__ __forceinline__ static constexpr u64 columns_right(int step) {
    return (static_cast<u64>(step / 4) * panel_bytes + static_cast<u64>(step % 4) * 32) / 16;
  }
  __device__ __forceinline__ static constexpr u64 rows_down(int step) { return static_cast<u64>(step) * row_bytes; }
};

// Where a warpgroup lays out its 64 rows of O, some panels at a time, for the copy engine to fetch while it goes on.
template <int columns>
struct OutputStage {
  static constexpr int panels = (columns + 63) / 64;
  static constexpr int at_once = panels % 2 == 0 ? 2 : 1;
  using Pass = Panels<64, at_once * 64>;
  static constexpr u32 bytes = Pass::bytes;

  u32 base;     // shared address, 1024-byte aligned
  u32 barrier;  // a named barrier of the warpgroup's own

  // The warpgroup: begins to write O, scaled by `factor`, from this box on; what does not exist is left out.
  template <Dtype dtype, class Box>
  __device__ __forceinline__ void store(const float (&O)[columns / 8][4], const float (&factor)[2],
                                        const AttuneTensorMap& map, const Box& to) const {
    const u32 corner = Pass{base}.chunk(warp_index() % 4 * 16 + lane_index() % 16, lane_index() / 16);
#pragma unroll
    for (int first = 0; first < panels; first += at_once) {
      finish();
      named_barrier_wait(barrier, warpgroup_size);
#pragma unroll
      for (int c = 0; c < at_once * 8 && first * 8 + c < columns / 8; c += 2) {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&tile)[4] = O[first * 8 + c + i / 2];
          word[i] = pack<dtype>(tile[i % 2 * 2] * factor[i % 2], tile[i % 2 * 2 + 1] * factor[i % 2]);
        }
        store_matrices((corner ^ static_cast<u32>(c % 8 * 16)) + static_cast<u32>(c / 8) * Pass::panel_bytes, word);
      }
      fence_for_copies();
      named_barrier_wait(barrier, warpgroup_size);
      if (warp_index() % 4 == 0 && elect_lane()) {
        for (int p = 0; p < at_once; ++p) to.store(map, base + p * Pass::panel_bytes, (first + p) * 64);
        commit_boxes();
      }
    }
  }

  // The stage has been read: of O that has been stored nothing is left in shared memory.
  __device__ __forceinline__ void finish() const {
    if (warp_index() % 4 == 0 && elect_lane()) wait_boxes_read();
  }
};
