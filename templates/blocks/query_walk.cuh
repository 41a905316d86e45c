// The order in which a block of keys meets queries.
#pragma once

#include "types.h"

// Blocks first_block to end_block - 1 of `heads` heads one after the other.
struct QueryWalk {
  int first_block;
  int end_block;
  int heads;  // left, this one included
  int head;
  int block;

  __device__ __forceinline__ QueryWalk(int head, int heads, int first_block, int end_block)
      : first_block(first_block),
        end_block(end_block),
        heads(end_block > first_block ? heads : 0),
        head(head),
        block(first_block) {}

  __device__ __forceinline__ bool goes_on() const { return heads > 0; }

  __device__ __forceinline__ void next() {
    if (++block < end_block) return;
    block = first_block;
    ++head;
    --heads;
  }
};
