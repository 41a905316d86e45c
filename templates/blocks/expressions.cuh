// What the spec says of scores and of which keys a query sees. The generator writes these from its expressions.
#pragma once

#include "blocks/ranges.cuh"
#include "blocks/score_functions.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

struct Expressions {
  const AttuneExpressionParams& params;

  // What is looked up once for all keys of a row.
  struct Row {};
  __device__ __forceinline__ Row row(const ScorePlace& /*at*/) const { return {}; }

  // What the mask looks up once for all rows of a key.
  struct Key {
    // That of the key that another lane of the warp has.
    __device__ __forceinline__ Key from(u32 /*lane*/) const { return {}; }
  };
  __device__ __forceinline__ Key key(const ScorePlace& /*at*/) const { return {}; }

  __device__ __forceinline__ float score(float s, const ScorePlace& /*at*/, const Row& /*row*/) const { return s; }
  __device__ __forceinline__ bool sees(const ScorePlace& /*at*/, const Row& /*row*/, const Key& /*key*/) const {
    return true;
  }

  // What each key adds to a score more than the key before it, where that is the same for all keys of a row, and
  // whether it is (blocks/tilted_softmax.cuh).
  __device__ __forceinline__ float added_by_key(const ScorePlace& /*at*/, const Row& /*row*/) const { return 0.0f; }
  static constexpr bool tilts = false;

  // The same of all places in a box.
  __device__ __forceinline__ static Truth shows(const ScoreBox& /*in*/) { return {true, true}; }

  // Whether a kernel before this one tells which blocks the mask leaves (blocks/told_blocks.cuh).
  static constexpr bool told = false;

  // So many of a sequence's first keys a query sees whatever the mask says of them.
  static constexpr int first_keys = 0;
};
