// What the spec says of scores and of which keys a query sees. The generator writes these from its expressions.
#pragma once

#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

struct Expressions {
  const AttuneExpressionParams& params;

  __device__ __forceinline__ float score(float s, const ScorePlace& /*at*/) const { return s; }
  __device__ __forceinline__ bool sees(const ScorePlace& /*at*/) const { return true; }

  // The same of all places in a box.
  __device__ __forceinline__ static Truth shows(const ScoreBox& /*in*/) { return {true, true}; }
};
