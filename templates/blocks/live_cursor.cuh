// A walk through a part of the keys without the blocks that a mask's expression hides from a tile of rows.
#pragma once

#include "blocks/decode_rows.cuh"
#include "blocks/live_blocks.cuh"
#include "blocks/parts.cuh"
#include "blocks/score_place.cuh"
#include "decode_params.h"
#include "ptx/grid.cuh"
#include "types.h"

// As Cursor, whose parts are counted with those blocks. Of each sequence that it enters one block stays, as what a part
// finds is left where others look for it.
template <int B_r, int B_c, bool interleave>
struct LiveCursor : Cursor<B_c, interleave, false> {
  using AllBlocks = Cursor<B_c, interleave, false>;

  __device__ __forceinline__ LiveCursor(const AttuneDecodeParams& params, int first_row)
      : AllBlocks(params, first_row) {
    if (this->exists()) begin(params);
  }

  // Goes to the next block; whether it is of the same sequence.
  __device__ __forceinline__ bool next(const AttuneDecodeParams& params) {
    if (AllBlocks::next(params)) {
      const auto live = live_blocks(params);
      while (this->block < this->end && !live.has(this->block)) this->block += step(params);
      if (this->block < this->end) return true;
      this->block = this->end;
      AllBlocks::next(params);
    }
    if (this->exists()) begin(params);
    return false;
  }

 private:
  __device__ __forceinline__ static int step(const AttuneDecodeParams& params) {
    return interleave && params.splits > 0 ? params.splits : 1;
  }

  // At the first block of a sequence.
  __device__ __forceinline__ void begin(const AttuneDecodeParams& params) {
    const auto live = live_blocks(params);
    while (this->block + step(params) < this->end && !live.has(this->block)) this->block += step(params);
  }

  __device__ __forceinline__ LiveBlocks<B_r, B_c, PaddedScoreRows> live_blocks(const AttuneDecodeParams& params) const {
    const int q_tiles = (params.seqlen_q * params.gqa_ratio + B_r - 1) / B_r;
    const int kv_head = static_cast<int>(block_index().x) / q_tiles;
    return {params, decode_rows(params, this->visible, this->batch, kv_head), kv_head, this->first_row};
  }
};
