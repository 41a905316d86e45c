// Which blocks of keys a mask's expression leaves to a tile of rows, as mask_blocks has found.
#pragma once

#include "blocks/score_place.cuh"
#include "mask_blocks_params.h"
#include "ptx/lanes.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

// As LiveBlocks. The words of 32 blocks stay in registers until others are asked for: no block waits for memory but the
// first of them. `together`: all lanes of a warp ask, and the compiler may know that they are told the same.
template <int B_r, bool together = false>
struct ToldBlocks {
  const u32* words;  // of the tile; null: all blocks are alive, and none is full
  int held;          // the number of the words that are here, -1: none, ...
  u32 live_bits;     // ... their bits of blocks that are alive ...
  u32 full_bits;     // ... and of those that are full

  ToldBlocks() = default;

  // `head` counts those that have tiles of their own.
  template <class KernelParams>
  __device__ __forceinline__ ToldBlocks(const KernelParams& params, const ScoreRows& rows, int head, int first_row) {
    const AttuneMaskBlocks& blocks = params.blocks;
    const i64 place =
        (static_cast<i64>(rows.batch) * blocks.heads + (blocks.heads > 1 ? head : 0)) * blocks.tiles + first_row / B_r;
    words = blocks.words == nullptr ? nullptr : blocks.words + 2 * place * blocks.tile_words;
    held = -1;
    live_bits = 0xffffffffu;
    full_bits = 0;
  }

  // Hands words over with a tile: those of its last block.
  template <class Tile>
  __device__ __forceinline__ void tell(Tile& tile) {
    hold((tile.blocks - 1) / 32);
    tile.word = held;
    tile.live = live_bits;
    tile.full = full_bits;
  }
  template <class Tile>
  __device__ __forceinline__ void take(const Tile& tile) {
    held = tile.word;
    live_bits = tile.live;
    full_bits = tile.full;
  }

  __device__ __forceinline__ bool has(int block) { return (live_of(block / 32) >> block % 32 & 1) != 0; }
  __device__ __forceinline__ bool is_full(int block) {
    hold(block / 32);
    return (full_bits >> block % 32 & 1) != 0;
  }
  __device__ __forceinline__ int last(int block, int first) {
    if (block <= first) return block;
    u32 below = 0xffffffffu >> (31 - block % 32);  // of the first word
#pragma unroll 1
    for (int word = block / 32; word * 32 + 31 > first; --word) {
      if (const u32 bits = live_of(word) & below; bits != 0) return maximum_of(word * 32 + highest_bit(bits), first);
      below = 0xffffffffu;
    }
    return first;
  }
  __device__ __forceinline__ int count(int first, int last) {
    int blocks = 0;
    for (int block = first; block <= last; ++block) blocks += has(block) ? 1 : 0;
    return blocks;
  }
  __device__ __forceinline__ int first(int block, int last) {
    if (block >= last) return block;
    u32 behind = 0xffffffffu << block % 32;  // of the first word
#pragma unroll 1
    for (int word = block / 32; word * 32 < last; ++word) {
      const u32 bits = live_of(word) & behind;
      if (bits != 0) return minimum_of(word * 32 + highest_bit(bits & (0u - bits)), last);
      behind = 0xffffffffu;
    }
    return last;
  }

 private:
  __device__ __forceinline__ void hold(int word) {
    if (words == nullptr || word == held) return;
    held = word;
    live_bits = known(load_global_word(words + word * 2));
    full_bits = known(load_global_word(words + word * 2 + 1));
  }
  __device__ __forceinline__ static u32 known(u32 bits) {
    if constexpr (together) {
      return static_cast<u32>(uniform(static_cast<int>(bits)));
    } else {
      return bits;
    }
  }
  __device__ __forceinline__ u32 live_of(int word) {
    hold(word);
    return live_bits;
  }
};
