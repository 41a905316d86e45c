// A tile of queries in fragments of mma.
#pragma once

#if variant::rotary != Rotary::none
#include "blocks/query_rotation.cuh"
#endif
#include "decode_params.h"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Q as the A operand of mma: in registers, or where they are short as they would be there in shared memory, read again
// in each product.
template <int inner_tiles, int row_tiles, int warps, bool in_registers>
struct QueryFragments {
  static constexpr int bytes = in_registers ? 0 : inner_tiles * row_tiles * warp_size * chunk_bytes;

  u32 shared;  // where they are; this lane's first
  u32 fragment[in_registers ? inner_tiles : 1][row_tiles][4];

  // All warps together, none of which reads the last ones any more.
  __device__ __forceinline__ QueryFragments(const AttuneDecodeParams& params, int batch, int kv_head, int first_row,
                                            u32 shared_address)
      : shared(shared_address + lane_index() * chunk_bytes) {
    const int first_tile = in_registers ? 0 : static_cast<int>(warp_index());
#pragma unroll
    for (int t = 0; t < inner_tiles; t += in_registers ? 1 : warps) {
      if (!in_registers && inner_tiles % warps != 0 && first_tile + t >= inner_tiles) break;
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        const Chunk words = load(params, batch, kv_head, first_row + i * 16, (first_tile + t) * 16);
        if constexpr (in_registers) {
#pragma unroll
          for (int w = 0; w < 4; ++w) fragment[t][i][w] = words.word[w];
        } else {
          store_shared(at_shared(first_tile + t, i), words);
        }
      }
    }
    if constexpr (!in_registers) block_barrier();
  }

  // Before inner step `inner`.
  __device__ __forceinline__ void advance(int inner) {
    if constexpr (!in_registers) {
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        const Chunk words = load_shared(at_shared(inner, i));
#pragma unroll
        for (int w = 0; w < 4; ++w) fragment[0][i][w] = words.word[w];
      }
    }
  }

  __device__ __forceinline__ const u32 (&at(int inner, int i) const)[4] {
    return fragment[in_registers ? inner : 0][i];
  }

 private:
  __device__ __forceinline__ u32 at_shared(int inner, int i) const {
    return shared + static_cast<u32>((inner * row_tiles + i) * warp_size * chunk_bytes);
  }

  // This lane's words of the 16 x 16 piece at (row, column).
  __device__ __forceinline__ static Chunk load(const AttuneDecodeParams& params, int batch, int kv_head, int row,
                                               int column) {
    const int lane = static_cast<int>(lane_index());
#if variant::rotary != Rotary::none
    const QueryRotation rotation(params, batch);
#endif
    Chunk words = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const QueryRow own(params, batch, kv_head, row + h * 8 + lane / 4);
      const char* elements = own.in(params.q);
#pragma unroll
      for (int d = 0; d < 2; ++d) {
        const int own_column = column + d * 8 + lane % 4 * 2;
        if (!own.exists || own_column >= params.head_dim) continue;
        u32& word = words.word[d * 2 + h];
        word = load_global_word(elements + own_column * 2);
#if variant::rotary != Rotary::none
        rotation.turn(params, word, elements, own.query, own_column);
#endif
      }
    }
    return words;
  }
};
