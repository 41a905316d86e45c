// The parameters of prefill_sm80's kernels with expressions, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "expression_params.h"
#include "mask_blocks_params.h"
#include "params.h"

struct AttuneExpressedPrefillParams : AttunePrefillParams {
  AttuneExpressionParams expressions;
  AttuneMaskBlocks blocks;
};
