// From what a caller of decode passed to a DecodeProblem, with every mistake named before anything is launched.
#pragma once

#include <cstdint>

#include "attune/attune.h"
#include "runtime/call/device.hpp"
#include "runtime/call/operand.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "templates/decode_params.h"
#include "templates/expressed_decode_params.h"

namespace attune {

/// Where its sequences' first keys stand; null where the caller does not say so or does not know of the field.
const std::int32_t* leftpad_of(const attune_decode_args& args);

/// How many queries of each sequence count; null where the caller does not say so or does not know of the field.
const std::int32_t* used_queries(const attune_decode_args& args);

/// Checks the shapes of a call: struct size and counts. Throws Error{ATTUNE_INVALID_ARGUMENT} with one line for each
/// mistake.
DecodeProblem check_shapes(const attune_decode_args& args);

/// Checks everything about a call that needs no GPU but its workspace: shapes, scale, pointers, strides, and that no
/// offset overflows. seqlens_k and block_table are device memory and not read. Throws like check_shapes(); allocates
/// nothing when there is no mistake.
DecodeProblem check_arguments(const attune_decode_args& args);

/// What a checked call reads and writes, its workspace apart.
void visit_operands(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit);

/// The operands that its attention reads, new keys and lengths apart; its results; and the lengths of sequences.
void visit_attention(const attune_decode_args& args, const DecodeProblem& problem, Access of_keys, VisitOperand visit);
void visit_results(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit);
void visit_lengths(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit);

/// Checks that the workspace holds what the plan needs. Throws Error{ATTUNE_INVALID_ARGUMENT}.
void check_workspace(const attune_decode_args& args, const DecodePlan& plan);

/// Whether there is no row to compute; there may be new keys to store.
bool is_empty(const DecodeProblem& problem);

/// Sequences that a launch takes; calls of more are several.
inline constexpr int most_launched_sequences = static_cast<int>(Grid::max_yz);

/// The problem of the launch that begins with this sequence.
DecodeProblem launched_of(DecodeProblem problem, long long begin);

/// The call of `count` of a checked call's sequences, from number `begin` on; without a check of its tables.
attune_decode_args part_of(const attune_decode_args& args, const DecodeProblem& problem, long long begin, int count);

/// The call of store_kv that brings a checked call's new keys into the cache; of no tokens where there are none.
attune_store_kv_args store_args(const attune_decode_args& args, const DecodeProblem& problem);

/// The parameter block of a checked call, which both kernels take.
AttuneDecodeParams make_params(const attune_decode_args& args, const DecodeProblem& problem, const DecodePlan& plan);

}  // namespace attune
