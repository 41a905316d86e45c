// A tile as the copy engine leaves it and wgmma reads it: panels of 64 columns side by side, 128 bytes a row, swizzled.
#pragma once

#include "ptx/tensor_copy.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

template <int rows, int columns>
struct Panels {
  static constexpr int width = 64;  // columns of a panel
  static constexpr int row_bytes = 2 * width;
  static constexpr int count = (columns + width - 1) / width;
  static constexpr u32 panel_bytes = rows * row_bytes;
  static constexpr u32 bytes = count * panel_bytes;
  static_assert(rows % 8 == 0 && rows <= 256 && columns % 16 == 0);

  u32 base;  // shared address, 1024-byte aligned

  // One thread: fetches the rows from these coordinates on; their bytes count at the mbarrier.
  __device__ __forceinline__ void load(const AttuneTensorMap& map, u32 barrier, int y, int z, int w) const {
#pragma unroll
    for (int p = 0; p < count; ++p) load_box(base + p * panel_bytes, map, barrier, p * width, y, z, w);
  }

  // The rows from `row` (a multiple of 8) on, for products along the columns; advanced by `columns_right`.
  __device__ __forceinline__ u64 descriptor(int row) const {
    return matrix_descriptor(base + static_cast<u32>(row) * row_bytes, panel_bytes);
  }
  // Added to a descriptor: 16 columns further, `step` times...
  __device__ __forceinline__ static constexpr u64 columns_right(int step) {
    return (static_cast<u64>(step / 4) * panel_bytes + static_cast<u64>(step % 4) * 32) / 16;
  }
  // ... or 16 rows.
  __device__ __forceinline__ static constexpr u64 rows_down(int step) {
    return static_cast<u64>(step) * 16 * row_bytes / 16;
  }
};
