// The parameters of backward_sm90's kernels with expressions, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "expression_params.h"
#include "tensor_backward_params.h"

struct AttuneExpressedTensorBackwardParams : AttuneTensorBackwardParams {
  AttuneExpressionParams expressions;
};
