#include "runtime/operations/merge/problem.hpp"

#include "runtime/operations/merge/problem_fields.hpp"

namespace attune {

const ProblemFacts MergeProblem::facts = usual_facts<MergeProblem>();

std::string MergeProblem::text() const { return text_of(*this); }

std::vector<std::string> problems_of(const MergeProblem& problem) { return checked_fields(problem).take(); }

bool is_empty(const MergeProblem& problem) { return problem.batch == 0 || problem.seqlen == 0; }

}  // namespace attune
