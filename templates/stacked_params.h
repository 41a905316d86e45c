// The parameters of prefill_sm90's kernels that stack the heads of short sequences, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "tensor_params.h"

struct AttuneStackedPrefillParams : AttuneTensorPrefillParams {
  struct AttuneTensorMap q_stacks;  // as q, but boxes of stack_rows rows of as many heads as make 64 rows
  struct AttuneTensorMap o_stacks;  // as o, but boxes of stack_rows rows of the gqa_ratio heads that share keys
};
