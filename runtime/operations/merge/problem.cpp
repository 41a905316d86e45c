#include "runtime/operations/merge/problem.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/call/field_checks.hpp"

namespace attune {

const ProblemFacts MergeProblem::facts = usual_facts<MergeProblem>();

std::string MergeProblem::text() const {
  return fmt::format("merge_states {} d{} b{} h{} l{}", value_text(*find_field("dtype"), static_cast<int>(dtype)),
                     head_dim, batch, heads, seqlen);
}

std::vector<std::string> problems_of(const MergeProblem& problem) {
  FieldChecks checks;
  checks.dtype(problem.dtype);
  checks.at_least("batch", problem.batch, 0);
  checks.in_range("seqlen", problem.seqlen, 0, most_rows);
  checks.at_least("heads", problem.heads, 1);
  checks.head_dim("head_dim", problem.head_dim);
  return std::move(checks).take();
}

bool is_empty(const MergeProblem& problem) { return problem.batch == 0 || problem.seqlen == 0; }

}  // namespace attune
