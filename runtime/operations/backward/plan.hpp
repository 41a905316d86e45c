// From a problem of the backward pass to the grids of its launches and what they need of the workspace. The same for
// GPUs and for the emulator.
#pragma once

#include <cstddef>

#include "runtime/call/device.hpp"
#include "runtime/call/plan.hpp"
#include "runtime/operations/backward/problem.hpp"

namespace attune {

/// Of the kernel that gives dK and dV, of that which gives dQ, and of those that begin and end. Throws
/// Error{ATTUNE_UNSUPPORTED} when no grid can hold the problem.
Launch plan(const Variant& variant, const BackwardProblem& problem, const Device& device);
Launch plan(const Variant& variant, const BackwardPart<Operation::backward_queries>& queries, const Device& device);
Launch plan(const Variant& variant, const BackwardPart<Operation::backward_rows>& rows);
Launch plan(const Variant& variant, const BackwardPart<Operation::backward_convert>& conversion);

/// Warps of a thread block that have sums of dK and dV, where query heads are in parts.
inline constexpr int key_warps = 8;

/// Rows of queries for each word of `turns` (AttuneBackwardParams).
int turn_rows(const Variant& variant);

/// Bytes of the workspace: LSE and D of each row, and after them the sums that become dQ, in fp32. Where the query
/// heads that share keys are in parts, what these sum of dK and dV follows, once for all parts and in fp32, and a word
/// for each warp. Where blocks add to dQ in an order, words follow that say whose turn it is.
struct BackwardWorkspace {
  std::size_t statistics_bytes = 0;
  std::size_t dq_bytes = 0;  ///< 0: dQ has a kernel of its own
  int dq_columns = 0;
  int head_parts = 1;  ///< thread blocks that share the query heads of each tile of keys
  std::size_t key_sum_bytes = 0;
  std::size_t key_turn_bytes = 0;
  std::size_t turn_bytes = 0;  ///< words by which blocks add in their order; the last
  bool dq_in_quads = false;    ///< as AttuneBackwardParams has it

  [[nodiscard]] std::size_t bytes() const { return key_turns_offset() + key_turn_bytes + turn_bytes; }
  [[nodiscard]] std::size_t key_sums_offset() const { return statistics_bytes + dq_bytes; }
  [[nodiscard]] std::size_t key_turns_offset() const { return key_sums_offset() + key_sum_bytes; }
};

/// Where this variant gives dK and dV.
BackwardWorkspace workspace_of(const Variant& variant, const BackwardProblem& problem, const Device& device);

}  // namespace attune
