// The window of a problem: how many keys before a query's position and after it the query sees.
#pragma once

namespace attune {

/// Whether a window says which keys a query sees, and not just the causal mask or none.
template <class OneProblem>
[[nodiscard]] bool has_window(const OneProblem& problem) {
  return problem.window_left >= 0 || (!problem.causal && problem.window_right >= 0);
}

/// Sets the window as a caller gives it, -1 for unlimited: a bound that hides no key is dropped, and a right one of 0
/// is the causal mask.
template <class OneProblem>
void set_window(OneProblem& problem, int left, int right) {
  problem.window_left = left < problem.seqlen_k - 1 ? left : -1;
  if (right == 0) problem.causal = true;
  problem.window_right = problem.causal || right >= problem.seqlen_q - 1 ? -1 : right;
}

}  // namespace attune
