// Rotary position embedding: pairs of a row's columns are turned by angles that depend on the row's position.
#pragma once

#include "blocks/chunks.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/unpack.cuh"
#include "types.h"

// Tables of the angles: positions x rotary_dim / 2.
struct Rotation {
  const void* cos;
  const void* sin;
  int rotary_dim;
  int positions;
};

// Turns the eight elements from `column` on of a row at this position; `from` is where they are in memory. Neighbouring
// columns make a pair (interleaved, as GPT-J has it), or columns rotary_dim / 2 apart (halves, GPT-NeoX). Columns from
// rotary_dim on and positions outside the tables stay as they are.
template <Dtype dtype>
__device__ __forceinline__ void rotate(Chunk& elements, const char* from, int column, const Rotation& rotation,
                                       i64 position) {
  if (column >= rotation.rotary_dim || position < 0 || position >= rotation.positions) return;
  const int half = rotation.rotary_dim / 2;
#if variant::rotary == Rotary::interleaved
  const i64 first_angle = position * half + column / 2;
  const char* cos = static_cast<const char*>(rotation.cos) + first_angle * element_bytes;
  const char* sin = static_cast<const char*>(rotation.sin) + first_angle * element_bytes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u32 c = load_global_word(cos + i / 2 * 4);
    const u32 s = load_global_word(sin + i / 2 * 4);
    const float cosine = i % 2 == 0 ? unpack_low<dtype>(c) : unpack_high<dtype>(c);
    const float sine = i % 2 == 0 ? unpack_low<dtype>(s) : unpack_high<dtype>(s);
    const float x = unpack_low<dtype>(elements.word[i]);
    const float y = unpack_high<dtype>(elements.word[i]);
    elements.word[i] = pack<dtype>(x * cosine - y * sine, x * sine + y * cosine);
  }
#else
  const bool upper = column >= half;
  const i64 first_angle = position * half + (upper ? column - half : column);
  const Chunk c = load_global(static_cast<const char*>(rotation.cos) + first_angle * element_bytes);
  const Chunk s = load_global(static_cast<const char*>(rotation.sin) + first_angle * element_bytes);
  const Chunk partner = load_global(from + (upper ? -half : half) * element_bytes);
  const float sign = upper ? 1.0f : -1.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = unpack_low<dtype>(elements.word[i]) * unpack_low<dtype>(c.word[i]) +
                      sign * unpack_low<dtype>(partner.word[i]) * unpack_low<dtype>(s.word[i]);
    const float high = unpack_high<dtype>(elements.word[i]) * unpack_high<dtype>(c.word[i]) +
                       sign * unpack_high<dtype>(partner.word[i]) * unpack_high<dtype>(s.word[i]);
    elements.word[i] = pack<dtype>(low, high);
  }
#endif
}
