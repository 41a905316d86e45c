#include "runtime/operations/backward/problem.hpp"

#include <algorithm>

#include "runtime/operations/backward/problem_fields.hpp"
#include "templates/backward_params.h"

namespace attune {
namespace {

constexpr long long padding = ATTUNE_BACKWARD_ROWS;

long long padded(long long rows) { return (rows + padding - 1) / padding * padding; }

}  // namespace

std::string BackwardProblem::text() const { return attune::text_of(*this) + expressions.text(); }

long long BackwardProblem::padded_seqlen_q() const { return padded(seqlen_q); }

long long BackwardProblem::padded_rows() const {
  return ragged ? padded(total_q + batch * padding) : batch * padded_seqlen_q();
}

Unmappable BackwardProblem::unmappable() const {
  if (stored_rows() == 0) return Unmappable::queries;
  if (stored_keys() == 0) return ragged ? Unmappable::total_k : Unmappable::seqlen_k;
  return mappable_strides ? Unmappable::no : Unmappable::strides;
}

Ask BackwardProblem::ask_of(Operation part) const {
  const bool of_rows = part == Operation::backward_rows || part == Operation::backward_convert;
  if (of_rows) {
    return {.need = {.operation = part,
                     .dtype = static_cast<int>(dtype),
                     .head_dim = part == Operation::backward_rows ? head_dim_of_v() : head_dim,
                     .ragged = ragged ? 1 : 0},
            .preference = {}};
  }
  return {.need = {.operation = part,
                   .dtype = static_cast<int>(dtype),
                   .head_dim = std::max(head_dim, head_dim_of_v()),
                   .causal = causal && !has_window(*this) ? 1 : 0,
                   .window = has_window(*this) ? 1 : 0,
                   .softcap = softcap > 0 ? 1 : 0,
                   .score = expressions.score,
                   .mask = expressions.mask,
                   .ragged = ragged ? 1 : 0,
                   .dropout = dropout ? 1 : 0,
                   .deterministic = any_order && part == Operation::backward ? 0 : 1,
                   .unmappable = static_cast<int>(unmappable())},
          .preference = {}};
}

std::string BackwardProblem::text_of(Operation part) const {
  const auto family = std::ranges::find(families(), part, &Family::operation);
  return std::string(family->name) + " of " + text();
}

BackwardPart<Operation::backward_rows> BackwardProblem::rows() const { return {*this}; }
BackwardPart<Operation::backward_queries> BackwardProblem::queries() const { return {*this}; }
BackwardPart<Operation::backward_convert> BackwardProblem::conversion() const { return {*this}; }

std::vector<std::string> problems_of(const BackwardProblem& problem) {
  FieldChecks checks = checked_fields(problem);
  checks.heads(problem.heads_q, problem.heads_kv);
  return std::move(checks).take();
}

bool is_empty(const BackwardProblem& problem) {
  return problem.batch == 0 || (problem.stored_rows() == 0 && problem.stored_keys() == 0) ||
         (problem.seqlen_q == 0 && problem.seqlen_k == 0);
}

}  // namespace attune
