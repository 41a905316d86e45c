#include "runtime/operations/store/problem.hpp"

#include "runtime/operations/store/problem_fields.hpp"

namespace attune {

const ProblemFacts StoreProblem::facts = usual_facts<StoreProblem>();

std::string StoreProblem::text() const { return text_of(*this); }

std::vector<std::string> problems_of(const StoreProblem& problem) {
  FieldChecks checks = checked_fields(problem);
  checks.rotation(problem.rotary, problem.rotary_dim, problem.head_dim);
  return std::move(checks).take();
}

bool is_empty(const StoreProblem& problem) { return problem.batch == 0 || problem.tokens == 0 || problem.pages == 0; }

}  // namespace attune
