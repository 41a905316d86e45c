// What a problem's expressions say that it has fields for: the causal mask, a window, a soft cap.
#pragma once

#include <algorithm>
#include <string>

#include "attune/attune.h"
#include "generator/expression/pool.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/window.hpp"

namespace attune {

/// Gives the fields what the expressions say of them, so that kernels without the expressions serve: of the operations
/// whose kernels have those fields (Family::takes_limits). It comes before set_window(), and a caller's window has the
/// bounds that it was given.
template <class OneProblem>
void take_limits(OneProblem& problem) {
  if (problem.expressions.mask != 0) {
    const auto [left, right, rest] = expression::limits_of_number(problem.expressions.mask);
    const auto take = [](int& bound, int limit) {
      if (limit >= 0) bound = bound == -1 ? limit : std::min(bound, limit);
    };
    take(problem.window_left, left);
    take(problem.window_right, right);
    problem.expressions.mask = rest;
  }
  if (problem.expressions.score == 0 || problem.softcap != 0) return;
  if (const float cap = expression::softcap_of_number(problem.expressions.score); cap > 0) {
    problem.softcap = cap;
    problem.expressions.score = 0;
  }
}

/// Gives a problem that is told by its sizes and its window's bounds the expressions of these texts, as a call of them
/// has them. Throws Error{ATTUNE_INVALID_ARGUMENT} with what is wrong in one, or where they mean different arrays by
/// one name.
template <class OneProblem>
void express(OneProblem& problem, const ExpressionTexts& texts) {
  problem.expressions = read_expressions(texts);
  if (const std::string conflict = conflict_of(problem.expressions); !conflict.empty()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, conflict);
  }
  if constexpr (requires { problem.causal; }) {
    take_limits(problem);
    set_window(problem, problem.window_left, problem.window_right);
  }
}

}  // namespace attune
