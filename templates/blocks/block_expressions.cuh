// What the spec says of which keys queries see, of blocks of them. The generator writes it from the mask.
#pragma once

#include "blocks/looked_up.cuh"
#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "types.h"

struct BlockExpressions {
  const AttuneExpressionParams& params;

  __device__ __forceinline__ Truth shows(const ScoreBox& /*in*/) const { return unknown(); }
};
