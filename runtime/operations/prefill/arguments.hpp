// From what a caller passed to a Problem, with every mistake named before anything is launched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attune/attune.h"
#include "runtime/call/operand.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"
#include "templates/params.h"

namespace attune {

/// Checks what a call's shapes say, without its pointers, strides and scale. Throws like check_arguments().
Problem check_shapes(const attune_prefill_args& args);

/// Checks everything about a call that needs no GPU: struct size, counts, scale, pointers, strides, and that
/// no offset overflows. Throws Error{ATTUNE_INVALID_ARGUMENT} with one line for each mistake: field, value,
/// accepted range. Allocates nothing when there is none.
Problem check_arguments(const attune_prefill_args& args);

/// Whether there is no row to compute, so that nothing has to be launched.
bool is_empty(const Problem& problem);

/// What a checked call reads and writes, its workspace apart.
void visit_operands(const attune_prefill_args& args, const Problem& problem, VisitOperand visit);

/// The workspace of a checked call, for the launch of this number.
Workspace workspace_of(const attune_prefill_args& args, std::uint64_t launch);

/// The workspace of a checked call whose kernel cannot do without these bytes. Throws Error{ATTUNE_INVALID_ARGUMENT}
/// where it is missing, too small or misaligned.
float* carried_rows(const attune_prefill_args& args, std::size_t bytes);

/// The parameter block of a checked call.
AttunePrefillParams make_params(const attune_prefill_args& args, const Problem& problem);

}  // namespace attune
