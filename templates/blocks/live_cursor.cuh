// A walk through a part of the keys without the blocks that a mask's expression hides from a tile of rows.
#pragma once

#include "blocks/decode_rows.cuh"
#include "blocks/expressions.cuh"
#include "blocks/parts.cuh"
#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "decode_params.h"
#include "ptx/grid.cuh"
#include "types.h"

// As Cursor, whose parts are counted with those blocks. Of each sequence that it enters one block stays, as what a part
// finds is left where others look for it.
template <int B_r, int B_c, bool interleave>
struct LiveCursor : Cursor<B_c, interleave, false> {
  using AllBlocks = Cursor<B_c, interleave, false>;

  int kv_head;
  Range queries;  // of the tile's rows
  bool is_full;   // it is known that every row sees every key of the block

  __device__ __forceinline__ LiveCursor(const AttuneDecodeParams& params, int first_row)
      : AllBlocks(params, first_row), is_full(false) {
    kv_head = static_cast<int>(block_index().x) / ((params.seqlen_q * params.gqa_ratio + B_r - 1) / B_r);
    if (!this->exists()) return;
    queries = rows(params).queries(first_row, B_r);
    begin(params);
  }

  // Goes to the next block; whether it is of the same sequence.
  __device__ __forceinline__ bool next(const AttuneDecodeParams& params) {
    if (AllBlocks::next(params)) {
      while (this->block < this->end && !is_alive(params)) this->block += step(params);
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
    while (!is_alive(params) && this->block + step(params) < this->end) this->block += step(params);
  }

  // Whether a row may see a key of the block.
  __device__ __forceinline__ bool is_alive(const AttuneDecodeParams& params) {
    const Truth shown = Expressions::shows(rows(params).box(queries, this->block * B_c, B_c));
    is_full = shown.surely;
    return shown.maybe;
  }

  __device__ __forceinline__ PaddedScoreRows rows(const AttuneDecodeParams& params) const {
    return decode_rows(params, this->visible, this->batch, kv_head);
  }
};
