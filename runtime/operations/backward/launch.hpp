// A call of the backward pass: rows, keys and values, then queries or the conversion of their sums; one plan.
#pragma once

#include <cstddef>

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/operations/backward/problem.hpp"

namespace attune {

/// Prepares all kernels that calls of this problem need.
void prepare(const BackwardProblem& problem, FindKernel prepare_kernel);

/// Runs a checked call.
void run(const attune_backward_args& args, const BackwardProblem& problem, const Backend& backend);

/// Bytes of workspace that calls of this problem need.
std::size_t workspace_bytes(const BackwardProblem& problem, MostBytes most);

}  // namespace attune
