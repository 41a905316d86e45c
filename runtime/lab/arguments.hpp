// The arguments of a call as far as its problem says them.
#pragma once

#include "attune/attune.h"
#include "runtime/operations/backward/problem.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// 1 / sqrt(head_dim)
double usual_scale(int head_dim);

/// Everything but tensors, arrays and the workspace, which are null; with the usual scale and dropout.
attune_prefill_args arguments_of(const Problem& problem);
attune_decode_args arguments_of(const DecodeProblem& problem);
attune_backward_args arguments_of(const BackwardProblem& problem);

}  // namespace attune
