// The parameters of prefill_sm90's kernels with expressions, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "expression_params.h"
#include "mask_blocks_params.h"
#include "tensor_params.h"
#include "tile_list.h"

struct AttuneExpressedTensorParams : AttuneTensorPrefillParams {
  AttuneExpressionParams expressions;
  AttuneMaskBlocks blocks;
};

// Of those that are told which tiles each block computes; they have no masks.
struct AttuneListedExpressedParams : AttuneListedPrefillParams {
  AttuneExpressionParams expressions;
};
