// Which blocks of keys a mask's expression leaves to a tile of rows: who loads and who computes ask alike.
#pragma once

#include "blocks/expressions.cuh"
#include "blocks/score_place.cuh"
#include "types.h"

template <int B_r, int B_c, class Rows = ScoreRows>
struct LiveBlocks {
  Rows rows;
  int first_row;

  LiveBlocks() = default;
  template <class KernelParams>
  __device__ __forceinline__ LiveBlocks(const KernelParams& /*params*/, const Rows& rows, int /*head*/, int first_row)
      : rows(rows), first_row(first_row) {}

  // Whether a row may see a key of this block, or of those from it on.
  __device__ __forceinline__ bool has(int block, int blocks = 1) const {
    return Expressions::shows(rows.box(first_row, B_r, block * B_c, blocks * B_c)).maybe;
  }
  // Whether it is known that every row sees every key of this block: ranges say so of a warp's rows.
  __device__ __forceinline__ static bool is_full(int /*block*/) { return false; }
  // The last of them from `block` down to `first`; `first` where there is none.
  __device__ __forceinline__ int last(int block, int first) const {
    return block > first ? behind_dead(block, first, -1) : block;
  }
  // How many there are from `first` up to `last`.
  __device__ __forceinline__ int count(int first, int last) const {
    int blocks = 0;
    for (int block = first; block <= last; ++block) blocks += has(block) ? 1 : 0;
    return blocks;
  }
  // The first of them from `block` up to `last`; `last` where there is none.
  __device__ __forceinline__ int first(int block, int last) const {
    return block < last ? behind_dead(block, last, 1) : block;
  }

 private:
  // The first from `block` on, in this direction, that may be alive, or `end`. It looks at 1, 2, 4, … blocks as long as
  // all are dead, then at half as many down to one: some ten looks find what stands far behind a window.
  __device__ __forceinline__ int behind_dead(int block, int end, int direction) const {
    int blocks = 1;
    bool grows = true;
#pragma unroll 1
    while (block != end) {
      blocks = minimum_of(blocks, direction * (end - block));
      const bool alive = has(direction > 0 ? block : block - blocks + 1, blocks);
      if (alive && blocks == 1) break;
      if (!alive) block += direction * blocks;
      grows = grows && !alive;
      blocks = grows ? blocks * 2 : maximum_of(blocks / 2, 1);
    }
    return block;
  }
};
