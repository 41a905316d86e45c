// Queries rotated on their way in, for keys that were rotated as they were stored.
#pragma once

#include "blocks/rotary.cuh"
#include "decode_params.h"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

// The positions of a sequence's queries as flash-attention's flash_attn_with_kvcache has them: one after the other from
// the first new key's on where it matters to a query which one it is, else all at the first.
struct QueryRotation {
  Rotation rotation;
  i64 first;
  int step;

  __device__ __forceinline__ QueryRotation(const AttuneDecodeParams& params, int batch)
      : rotation{params.cos, params.sin, params.rotary_dim, params.rotations},
        first(load_global_int(params.seqlens_k + batch)),
        step(params.window_left >= 0 || params.window_right >= 0 ? 1 : 0) {}

  // Turns the eight elements of a query from `column` on; `from` is where they are in memory.
  __device__ __forceinline__ void turn(Chunk& elements, const char* from, int query, int column) const {
    rotate<variant::dtype>(elements, from, column, rotation, first + query * step);
  }
};
