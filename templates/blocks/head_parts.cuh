// Query heads that share keys, in parts: where the tiles of keys are too few for a GPU, a thread block has some of
// these heads alone, and the gradients of keys are summed in the order of the heads. A block adds what the parts before
// its own have left in memory to its sums, in fp32, and leaves them to the next; the last has the gradients. Blocks
// start part after part, so that nobody waits for who has not begun, and those that run beside each other rarely wait
// at all.
#pragma once

#include "backward_params.h"
#include "blocks/schedule.cuh"
#include "ptx/grid.cuh"
#include "ptx/handover.cuh"
#include "ptx/lanes.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Which heads a block has.
struct HeadPart {
  TileIndex tile;
  int part;
  int first_head;  // of Q
  int heads;

  __device__ __forceinline__ HeadPart(const AttuneBackwardParams& params, const TileIndex& of_all)
      : tile(of_all), part(of_all.batch / params.batch) {
    tile.batch -= part * params.batch;
    first_head = tile.head * params.gqa_ratio + part * params.part_heads;
    heads = params.part_heads;
  }
};

// Adds to a lane's accumulators what was left of them from there on, ...
template <int pieces>
__device__ __forceinline__ void add_left(float (&D)[pieces][4], const float* from) {
#pragma unroll
  for (int n = 0; n < pieces; ++n) {
    float left[4];
    load_floats(left, from + n * (4 * warp_size));
#pragma unroll
    for (int e = 0; e < 4; ++e) D[n][e] += left[e];
  }
}

// ... and leaves them there.
template <int pieces>
__device__ __forceinline__ void leave(const float (&D)[pieces][4], float* to) {
#pragma unroll
  for (int n = 0; n < pieces; ++n) store_floats(to + n * (4 * warp_size), D[n]);
}

// A warp of `warps`: its sums and those of all parts before. False where another part goes on with them.
template <int warps, int pieces>
__device__ __forceinline__ bool gather_parts(const AttuneBackwardParams& params, const HeadPart& own, u32 warp,
                                             float (&dK)[pieces][4], float (&dV)[pieces][4]) {
  if (params.head_parts == 1) return true;
  const int kv_heads = params.heads_q / params.gqa_ratio;
  const u32 tile =
      static_cast<u32>(own.tile.batch * kv_heads + own.tile.head) * grid_size().y + static_cast<u32>(own.tile.q_block);
  const u32 place = tile * warps + warp;
  float* const of_keys = params.key_sums + static_cast<i64>(place) * (2 * pieces * 4 * warp_size) + lane_index() * 4;
  float* const of_values = of_keys + pieces * 4 * warp_size;
  u64* const word = params.key_turns + place;
  if (own.part > 0) {
    await_word(word, params.launch + static_cast<u64>(own.part));
    add_left(dK, of_keys);
    add_left(dV, of_values);
  }
  const bool is_last = own.part + 1 == params.head_parts;
  if (!is_last) {
    leave(dK, of_keys);
    leave(dV, of_values);
  }
  warp_barrier();  // all lanes have seen the word, and written
  if (lane_index() == 0) announce_word(word, is_last ? 0 : params.launch + static_cast<u64>(own.part) + 1);
  return is_last;
}
