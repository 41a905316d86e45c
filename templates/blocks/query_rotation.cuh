// Queries rotated as they are loaded, for keys that were rotated as they were stored.
#pragma once

#include "blocks/rotation.cuh"
#include "decode_params.h"
#include "ptx/memory_words.cuh"
#include "types.h"

// The positions of a sequence's queries as flash-attention's flash_attn_with_kvcache has them: one after the other from
// the first new key's on where it matters to a query which one it is, else all at the first.
struct QueryRotation {
  i64 first;
  int step;

  __device__ __forceinline__ QueryRotation(const AttuneDecodeParams& params, int batch)
      : first(load_global_int(params.seqlens_k + batch)),
        step(params.window_left >= 0 || params.window_right >= 0 ? 1 : 0) {}

  // Turns the two elements of a query from an even column on; `row` is where its elements are in memory.
  __device__ __forceinline__ void turn(const AttuneDecodeParams& params, u32& word, const char* row, int query,
                                       int column) const {
    const i64 position = first + query * step;
    if (column >= params.rotary_dim || position < 0 || position >= params.rotations) return;
    const int half = params.rotary_dim / 2;
    const char* cos = static_cast<const char*>(params.cos);
    const char* sin = static_cast<const char*>(params.sin);
#if variant::rotary == Rotary::interleaved
    // An even row of angles and a pair of them a word: the column says which of the two.
    const i64 angles = position * half + column / 4 * 2;
    const bool second = column % 4 != 0;
    word =
        turn_pair<variant::dtype>(word, second, load_global_word(cos + angles * 2), load_global_word(sin + angles * 2));
#else
    const bool upper = column >= half;
    const i64 angles = position * half + (upper ? column - half : column);
    const u32 partner = load_global_word(row + (column + (upper ? -half : half)) * 2);
    word = turn_half<variant::dtype>(word, partner, upper, load_global_word(cos + angles * 2),
                                     load_global_word(sin + angles * 2));
#endif
  }
};
