#include "generator/problem_list.hpp"

#include <fmt/format.h>

#include <utility>

namespace attune {

void add_problem(std::vector<Diagnostic>& problems, Diagnostic problem) {
  if (is_full(problems)) return;
  if (problems.size() == most_problems) {
    problem.what = fmt::format("there are more than {} problems", most_problems);
    problem.fix = "the first ones come first";
  }
  problems.push_back(std::move(problem));
}

}  // namespace attune
