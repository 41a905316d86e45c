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

// What kernels ask of types that have live blocks where the variant has a mask, and no such member elsewhere.
template <class Sequence>
__device__ __forceinline__ void keep_live_queries(Sequence& sequence, const ScoreRows& rows, int first_key) {
  sequence.live = {rows, first_key};
}
template <class Sequence>
__device__ __forceinline__ bool has_live_query(const Sequence& sequence, int head, int block) {
  return sequence.live.has(head, block);
}
template <class Walk>
__device__ __forceinline__ void walk_live(Walk& walk, const ScoreRows& rows, int first_key) {
  walk.follow({rows, first_key});
}
template <class Turn, class Mask, class Walk>
__device__ __forceinline__ void count_live_blocks(Turn& turn, const Mask& mask, const Walk& walk, int key_block) {
  turn.count_live(mask, walk.live, walk.head, walk.block, key_block);
}
