// From what a caller of merge_states passed to a MergeProblem, with every mistake named before anything is launched.
#pragma once

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/call/chunk_plan.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "templates/store_params.h"

namespace attune {

/// Checks everything about a call that needs no GPU: struct size, counts, pointers, strides, that no offset overflows,
/// and that nothing is written that other threads read. Throws Error{ATTUNE_INVALID_ARGUMENT} with one line for each
/// mistake; allocates nothing when there is none.
MergeProblem check_arguments(const attune_merge_states_args& args);

/// What a checked call reads and writes.
void visit_operands(const attune_merge_states_args& args, const MergeProblem& problem, VisitOperand visit);

/// The parameter block of a checked call.
AttuneMergeParams make_params(const attune_merge_states_args& args, const MergeProblem& problem);

/// The launch of a variant. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
Launch plan(const Variant& variant, const MergeProblem& problem);

/// Runs a checked call.
void run(const attune_merge_states_args& args, const MergeProblem& problem, const Backend& backend);

}  // namespace attune
