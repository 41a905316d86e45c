// From what a caller of the backward pass passed to a BackwardProblem, with every mistake named before anything is
// launched.
#pragma once

#include <cstdint>

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/call/operand.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "templates/backward_params.h"
#include "templates/tensor_backward_params.h"

namespace attune {

/// Checks what a call's shapes say, without its pointers, strides and scale. Throws like check_arguments().
BackwardProblem check_shapes(const attune_backward_args& args);

/// Checks everything about a call that needs no GPU: struct size, counts, scale, pointers, strides, that no offset
/// overflows, and that no gradient has the memory of another tensor; its workspace apart. Throws
/// Error{ATTUNE_INVALID_ARGUMENT} with one line for each mistake; allocates nothing when there is none.
BackwardProblem check_arguments(const attune_backward_args& args);

/// Throws Error{ATTUNE_INVALID_ARGUMENT} where the workspace is missing, too small or misaligned.
void check_workspace(const attune_backward_args& args, const BackwardWorkspace& workspace);

/// The parameter block of a checked call. `launch` is a number that no memory can be expected to hold.
AttuneBackwardParams make_params(const attune_backward_args& args, const BackwardProblem& problem,
                                 const BackwardWorkspace& workspace, std::uint64_t launch);

/// The same for this variant, whose family has tensor maps.
AttuneTensorBackwardParams make_tensor_params(const AttuneBackwardParams& params, const Variant& variant,
                                              const BackwardProblem& problem, const Executor& executor);

/// What the launches of a checked call read and write: the first, ...
void visit_rows(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                VisitOperand visit);
/// ... that which gives dK and dV, and adds to dQ where it may, ...
void visit_keys(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                const Variant& variant, VisitOperand visit);
/// ... and that which gives dQ.
void visit_queries(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                   VisitOperand visit);

/// What a checked call reads and writes, its workspace apart.
void visit_operands(const attune_backward_args& args, const BackwardProblem& problem, VisitOperand visit);

}  // namespace attune
