// The parameters of decode_sm80's kernels with expressions, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "decode_params.h"
#include "expression_params.h"

struct AttuneExpressedDecodeParams : AttuneDecodeParams {
  AttuneExpressionParams expressions;
};
