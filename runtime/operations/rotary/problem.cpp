#include "runtime/operations/rotary/problem.hpp"

#include "runtime/operations/rotary/problem_fields.hpp"

namespace attune {

const ProblemFacts RotaryProblem::facts = usual_facts<RotaryProblem>();

std::string RotaryProblem::text() const { return text_of(*this); }

std::vector<std::string> problems_of(const RotaryProblem& problem) {
  FieldChecks checks = checked_fields(problem);
  if (problem.rotary == Rotary::none) checks.add("rotary is 0 (none); it must be 1 (interleaved) or 2 (halves)");
  checks.rotation(problem.rotary, problem.rotary_dim, problem.head_dim);
  return std::move(checks).take();
}

bool is_empty(const RotaryProblem& problem) { return problem.batch == 0 || problem.seqlen == 0; }

}  // namespace attune
