// The last chunk of a row whose columns are no multiple of 8, which the row's end cuts.
#pragma once

#include "ptx/memory_chunks.cuh"
#include "types.h"

// Bytes of a chunk that belong to a row of which `columns`, 1 or more, are left.
__device__ __forceinline__ u32 bytes_of_columns(int columns) {
  return static_cast<u32>(columns < chunk ? columns * 2 : chunk_bytes);
}
