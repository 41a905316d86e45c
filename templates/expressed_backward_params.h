// The parameters of backward_sm80's and backward_dq_sm80's kernels with expressions, under params.h's
// ATTUNE_PARAMS_ABI.
#pragma once

#include "backward_params.h"
#include "expression_params.h"

struct AttuneExpressedBackwardParams : AttuneBackwardParams {
  AttuneExpressionParams expressions;
};
