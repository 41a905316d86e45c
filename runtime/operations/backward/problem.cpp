#include "runtime/operations/backward/problem.hpp"

#include <algorithm>

#include "runtime/call/page_counts.hpp"
#include "runtime/operations/backward/problem_fields.hpp"
#include "templates/backward_params.h"

namespace attune {
namespace {

constexpr long long padding = ATTUNE_BACKWARD_ROWS;

long long padded(long long rows) { return (rows + padding - 1) / padding * padding; }

}  // namespace

std::string BackwardProblem::text() const { return attune::text_of(*this) + expressions.text(); }

BackwardProblem BackwardProblem::usual() {
  return {.heads_q = 16,
          .heads_kv = left_out,
          .seqlen_q = 1024,
          .seqlen_k = left_out,
          .head_dim_v = left_out,
          .total_q = left_out,
          .total_k = left_out};
}

void BackwardProblem::complete() {
  fill(heads_kv, heads_q);
  fill(seqlen_k, seqlen_q);
  fill(head_dim_v, 0);
  fill(total_q, ragged ? longest_total(batch, seqlen_q) : 0);
  fill(total_k, ragged ? longest_total(batch, seqlen_k) : 0);
}

Problem BackwardProblem::attention() const {
  return {.dtype = dtype,
          .batch = batch,
          .heads_q = heads_q,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .head_dim_v = head_dim_v,
          .causal = causal,
          .window_left = window_left,
          .window_right = window_right,
          .softcap = softcap,
          .ragged = ragged,
          .total_q = total_q,
          .total_k = total_k,
          .dropout = dropout,
          .expressions = expressions,
          .mappable_strides = mappable_strides};
}

BackwardProblem BackwardProblem::of(const Problem& attention, bool any_order) {
  return {.dtype = attention.dtype,
          .batch = attention.batch,
          .heads_q = attention.heads_q,
          .heads_kv = attention.heads_kv,
          .seqlen_q = attention.seqlen_q,
          .seqlen_k = attention.seqlen_k,
          .head_dim = attention.head_dim,
          .head_dim_v = attention.head_dim_v,
          .causal = attention.causal,
          .window_left = attention.window_left,
          .window_right = attention.window_right,
          .softcap = attention.softcap,
          .ragged = attention.ragged,
          .total_q = attention.total_q,
          .total_k = attention.total_k,
          .mappable_strides = attention.mappable_strides,
          .dropout = attention.dropout,
          .expressions = attention.expressions,
          .any_order = any_order};
}

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
  return problem.batch == 0 || (problem.stored_rows() == 0 && problem.stored_keys() == 0);
}

}  // namespace attune
