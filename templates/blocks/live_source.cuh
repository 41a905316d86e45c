// Blocks of K and V without those that a mask's expression hides from a tile of rows.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/live_blocks.cuh"
#include "types.h"

// As `Source`, from one live block to the next.
template <bool paged, class Source, class Live>
struct LiveSource : Source {
  using Source::Source;

  Live live;
  int lowest;   // block of the tile
  int K_block;  // the next to request
  int V_block;

  // Begins with this block, the one that the source is at.
  __device__ __forceinline__ void follow(const Live& blocks, int first, int last) {
    live = blocks;
    lowest = first;
    K_block = V_block = last;
  }

  template <Operand operand, bool whole>
  __device__ __forceinline__ void copy(const typename Source::TileType& tile) {
    int& block = operand == Operand::K ? K_block : V_block;
    const int next = live.last(block - 1, lowest);
    const int hidden = block - 1 - next;
    if constexpr (paged) {
      if constexpr (operand == Operand::V) this->key -= hidden * Source::TileType::rows;  // where it then looks up
      Source::template copy<operand, whole>(tile);
    } else {
      Source::template copy<operand, whole>(tile);
      (operand == Operand::K ? this->K : this->V).move(-hidden);
    }
    block = next;
  }
};

// Has a source that is at the block `last` go from live block to live block of the tile, down to `first`.
template <class Source, class Live>
__device__ __forceinline__ void follow_live(Source& source, const Live& live, int first, int last) {
  source.follow(live, first, last);
}
