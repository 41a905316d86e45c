// From what a caller of rotary_embedding passed to a RotaryProblem, with every mistake named before anything is
// launched; and the launch.
#pragma once

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/call/chunk_plan.hpp"
#include "runtime/operations/rotary/problem.hpp"
#include "templates/rotary_params.h"

namespace attune {

/// Checks everything about a call that needs no GPU: struct size, counts, the rotation, pointers, strides, and that no
/// offset overflows. Positions and offsets are device memory and not read. Throws Error{ATTUNE_INVALID_ARGUMENT} with
/// one line for each mistake; allocates nothing when there is none.
RotaryProblem check_arguments(const attune_rotary_embedding_args& args);

/// What a checked call reads and writes.
void visit_operands(const attune_rotary_embedding_args& args, const RotaryProblem& problem, VisitOperand visit);

/// The parameter block of a checked call.
AttuneRotaryParams make_params(const attune_rotary_embedding_args& args, const RotaryProblem& problem);

/// The launch of a variant. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
Launch plan(const Variant& variant, const RotaryProblem& problem);

/// Runs a checked call.
void run(const attune_rotary_embedding_args& args, const RotaryProblem& problem, const Backend& backend);

}  // namespace attune
