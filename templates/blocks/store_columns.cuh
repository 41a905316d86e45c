// Writing rows whose columns are no multiple of 8: what lies beyond their end is somebody else's memory.
#pragma once

#include "ptx/memory_chunks.cuh"
#include "ptx/memory_elements.cuh"
#include "types.h"

// Writes a chunk to a row of which `columns` are left there, up to the row's end.
__device__ __forceinline__ void store_columns(char* to, const Chunk& data, int columns) {
  if (columns >= chunk) {
    store_global(to, data);
    return;
  }
#pragma unroll
  for (int column = 0; column < chunk; ++column) {
    if (column < columns) store_global_element(to + column * 2, data.word[column / 2] >> column % 2 * 16);
  }
}
