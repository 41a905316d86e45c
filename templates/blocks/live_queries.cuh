// Which blocks of queries a mask's expression leaves to a tile of keys: who loads, who computes and who adds ask alike.
#pragma once

#include "blocks/expressions.cuh"
#include "blocks/query_walk.cuh"
#include "blocks/score_place.cuh"
#include "types.h"

template <int B_r, int B_c>
struct LiveQueries {
  ScoreRows rows;  // of any head that shares the keys
  int first_key;

  // Whether a query of this block and head may see a key of the tile, ...
  __device__ __forceinline__ bool has(int head, int block) const { return shows(head, block, first_key); }
  // ... or of that which begins at `key`.
  __device__ __forceinline__ bool shows(int head, int block, int key) const {
    ScoreRows own = rows;
    own.head = head;
    return Expressions::shows(own.box(block * B_r, B_r, key, B_c)).maybe;
  }
};

// A sequence that knows of them.
template <class Sequence, class Live>
struct LiveSequence : Sequence {
  using Sequence::Sequence;

  Live live;
};

// As QueryWalk, from one live block to the next.
template <class Live>
struct LiveWalk : QueryWalk {
  using QueryWalk::QueryWalk;

  Live live;

  // At the first of them.
  __device__ __forceinline__ void follow(const Live& blocks) {
    live = blocks;
    skip();
  }
  __device__ __forceinline__ void next() {
    QueryWalk::next();
    skip();
  }

 private:
  __device__ __forceinline__ void skip() {
    while (goes_on() && !live.has(head, block)) QueryWalk::next();
  }
};
