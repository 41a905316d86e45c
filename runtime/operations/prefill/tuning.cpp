#include "runtime/operations/prefill/tuning.hpp"

#include <algorithm>

namespace attune {

TileSizes tile_sizes_of(const Problem& problem) {
  const Problem typical = problem.typical();
  const int left = has_window(problem) ? problem.window_left : -1;
  return {.tile_rows = typical.seqlen_q,
          .steps = seen_in_window(typical.seqlen_k, left, problem.causal ? 0 : problem.window_right),
          .sequences = typical.batch,
          .page_size = problem.paged ? problem.page_size : 1};
}

double products_of(const Problem& problem, int columns) {
  const double full = 2.0 * problem.batch * problem.heads_q * problem.seqlen_q * problem.seqlen_k * columns;
  return problem.causal ? full / 2 : full;
}

Work launch_work(const Problem& problem) {
  const double amount = products_of(problem, problem.head_dim + problem.head_dim_of_v());
  return {.amount = amount, .is_bytes = false, .part_of_peak = 0.35};
}

double largest_operand(const Problem& problem) {
  const double queries = static_cast<double>(problem.stored_sequences()) * problem.stored_rows() * problem.heads_q;
  const double keys = static_cast<double>(problem.stored_key_sequences()) * problem.stored_keys() * problem.heads_kv;
  return std::max(queries, keys) * problem.head_dim;
}

}  // namespace attune
