#include "runtime/operations/backward/tuning.hpp"

namespace attune {

TileSizes tile_sizes_of(const BackwardProblem& problem) {
  const Problem typical = problem.attention().typical();
  const int left = has_window(problem) ? problem.window_left : -1;
  return {.tile_rows = typical.seqlen_k,
          .steps = seen_in_window(typical.seqlen_q, left, problem.causal ? 0 : problem.window_right),
          .sequences = typical.batch};
}

Work launch_work(const BackwardProblem& problem) {
  // S, dK and dQ; dP and dV.
  const double amount = products_of(problem.attention(), 3 * problem.head_dim + 2 * problem.head_dim_of_v());
  return {.amount = amount, .is_bytes = false, .part_of_peak = 0.28};
}

double largest_operand(const BackwardProblem& problem) { return largest_operand(problem.attention()); }

}  // namespace attune
