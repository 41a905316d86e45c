// A tile that several warpgroups read by parts of its columns, where 64 does not divide a part.
#pragma once

#include "blocks/panels.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

// Each part begins with a panel of its own, as products along the rows need it. Where its last panel has columns to
// spare, those of the next part stand there, or zeros, which nobody reads.
template <int rows, int columns, int parts>
struct PartedPanels : Panels<rows, parts*((columns / parts + 63) / 64 * 64)> {
  using All = Panels<rows, parts*((columns / parts + 63) / 64 * 64)>;
  static constexpr int part_columns = columns / parts;
  static constexpr int part_panels = All::count / parts;
  static_assert(columns % parts == 0 && part_columns % 16 == 0);

  // As Panels has them.
  template <class Box>
  __device__ __forceinline__ void load(const AttuneTensorMap& map, u32 barrier, const Box& from) const {
    for (int p = 0; p < All::count; ++p) {
      const int first_column = p / part_panels * part_columns + p % part_panels * All::width;
      from.load(All::base + p * All::panel_bytes, map, barrier, first_column);
    }
  }
  __device__ __forceinline__ static constexpr u64 columns_right(int step) {
    constexpr int part_steps = part_columns / 16;
    const int panel = step / part_steps * part_panels + step % part_steps / 4;
    return (static_cast<u64>(panel) * All::panel_bytes + static_cast<u64>(step % part_steps % 4) * 32) / 16;
  }
};
