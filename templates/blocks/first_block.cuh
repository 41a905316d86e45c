// Where a tile of a kernel with a window begins to read keys.
#pragma once

#include "blocks/window.cuh"

// Of `blocks` blocks of `size` keys the first that the queries from `row` on see: the last one where that is none.
__device__ __forceinline__ int first_block(const Window& window, int row, int blocks, int size) {
  const int block = window.first(row) / size;
  return block < blocks ? block : blocks - 1;
}
