// From what a caller of store_kv passed to a StoreProblem, with every mistake named before anything is launched.
#pragma once

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/call/chunk_plan.hpp"
#include "runtime/operations/store/problem.hpp"
#include "templates/store_params.h"

namespace attune {

/// Checks everything about a call that needs no GPU: struct size, counts, the rotation, pointers, strides, and that no
/// offset overflows. Slots, lengths, tables and positions are device memory and not read. Throws
/// Error{ATTUNE_INVALID_ARGUMENT} with one line for each mistake; allocates nothing when there is none.
StoreProblem check_arguments(const attune_store_kv_args& args);

/// What a checked call reads and writes.
void visit_operands(const attune_store_kv_args& args, const StoreProblem& problem, VisitOperand visit);

/// The parameter block of a checked call.
AttuneStoreParams make_params(const attune_store_kv_args& args, const StoreProblem& problem);

/// The launch of a variant. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
Launch plan(const Variant& variant, const StoreProblem& problem);

/// Runs a checked call.
void run(const attune_store_kv_args& args, const StoreProblem& problem, const Backend& backend);

}  // namespace attune
