// A tile of 16-bit elements in shared memory, row-major, swizzled so that eight rows of one column of chunks
// lie in eight different groups of four banks: what ldmatrix reads at once never conflicts.
#pragma once

#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// The swizzle works on aligned runs of `span` chunks, the largest power of two (at most 8, which is all 32
// banks) that divides a row. 8 / span rows fill the banks once, so the XOR advances every 8 / span rows.
template <int rows_, int columns_, bool swizzled>
struct Tile {
  static constexpr int rows = rows_;
  static constexpr int columns = columns_;
  static constexpr int row_bytes = columns * 2;
  static constexpr int bytes = rows * row_bytes;
  static constexpr int chunks = columns / chunk;
  static constexpr int span = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : chunks % 2 == 0 ? 2 : 1;
  static_assert(columns % chunk == 0 && rows % 8 == 0);

  u32 base;  // shared address, 128-byte aligned, or as a function says

  // Shared address of a chunk of a row. Unsigned, so that the compiler sees which bits rows a multiple of 8
  // apart share.
  __device__ __forceinline__ u32 at(u32 row, u32 column_chunk) const {
    const u32 moved = swizzled ? column_chunk ^ (row / (8 / span) % span) : column_chunk;
    return base + row * row_bytes + moved * chunk_bytes;
  }

  // The same of a chunk below 32, where the tile begins at a multiple of 512 bytes. Not a sum: of a uniform base and a
  // lane's own part of one ptxas (13.0) makes, in branches, copies that no GPU executes (LDGSTS [R+UR], desc[UR1]).
  __device__ __forceinline__ u32 at_chunk_below_32(u32 row, u32 column_chunk) const {
    static_assert(bytes % 512 == 0);
    const u32 moved = swizzled ? row / (8 / span) % span : 0;
    return ((base | column_chunk * chunk_bytes) ^ moved * chunk_bytes) + row * row_bytes;
  }

  // The chunk `chunks_right` (even, or any from column 0) to the right and `rows_down` (a multiple of 8) below the one
  // at `address`, whose own column of chunks is 0 or 1: one XOR and an immediate offset.
  __device__ __forceinline__ u32 beyond(u32 address, int rows_down, int chunks_right) const {
    const int inside = chunks_right % span;
    const u32 moved =
        swizzled ? address ^ static_cast<u32>(inside * chunk_bytes) : address + static_cast<u32>(inside * chunk_bytes);
    return moved + static_cast<u32>((chunks_right - inside) * chunk_bytes + rows_down * row_bytes);
  }
};

// Where this lane points ldmatrix for the 16 x 16 corner at (row, 0): the two 8-row halves as the first and
// second matrix (A operand; B operand from a tile whose rows are the product's inner dimension), ...
template <class TileType>
__device__ __forceinline__ u32 lane_address_rows_first(const TileType& tile, u32 row) {
  const u32 lane = lane_index();
  return tile.at(row + lane % 16, lane / 16);
}

// ... or the two 8-column halves (B operand from a tile whose columns are the inner dimension).
template <class TileType>
__device__ __forceinline__ u32 lane_address_columns_first(const TileType& tile, u32 row) {
  const u32 lane = lane_index();
  return tile.at(row + lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
