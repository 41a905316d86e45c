// Rotary position embedding of eight elements.
#pragma once

#include "blocks/chunks.cuh"
#include "blocks/rotation.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

// Tables of the angles: positions x rotary_dim / 2.
struct Rotation {
  const void* cos;
  const void* sin;
  int rotary_dim;
  int positions;
};

// Turns the eight elements from `column` on of a row at this position; `from` is where they are in memory. Columns from
// rotary_dim on and positions outside the tables stay as they are.
template <Dtype dtype>
__device__ __forceinline__ void rotate(Chunk& elements, const char* from, int column, const Rotation& rotation,
                                       i64 position) {
  if (column >= rotation.rotary_dim || position < 0 || position >= rotation.positions) return;
  const int half = rotation.rotary_dim / 2;
  if constexpr (variant::rotary == Rotary::interleaved) {
    const i64 first_angle = position * half + column / 2;
    const char* cos = static_cast<const char*>(rotation.cos) + first_angle * element_bytes;
    const char* sin = static_cast<const char*>(rotation.sin) + first_angle * element_bytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 c = load_global_word(cos + i / 2 * 4);
      const u32 s = load_global_word(sin + i / 2 * 4);
      elements.word[i] = turn_pair<dtype>(elements.word[i], i % 2 != 0, c, s);
    }
  } else {
    const bool upper = column >= half;
    const i64 first_angle = position * half + (upper ? column - half : column);
    const Chunk c = load_global(static_cast<const char*>(rotation.cos) + first_angle * element_bytes);
    const Chunk s = load_global(static_cast<const char*>(rotation.sin) + first_angle * element_bytes);
    const Chunk partner = load_global(from + (upper ? -half : half) * element_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      elements.word[i] = turn_half<dtype>(elements.word[i], partner.word[i], upper, c.word[i], s.word[i]);
    }
  }
}
