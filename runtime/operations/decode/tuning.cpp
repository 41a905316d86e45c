#include "runtime/operations/decode/tuning.hpp"

#include <algorithm>

namespace attune {
namespace {

/// Of `total` rows in `batch` sequences of at most `longest`.
long long mean_length(int total, int batch, int longest) {
  return std::min<long long>(longest, (static_cast<long long>(total) + batch - 1) / std::max(1, batch));
}

}  // namespace

DecodeProblem without_idle_bounds(DecodeProblem problem) {
  if (problem.window_left >= problem.max_seqlen_k - 1) problem.window_left = -1;
  return problem;
}

TileSizes tile_sizes_of(const DecodeProblem& problem) {
  const long long seqlen_q =
      problem.ragged ? mean_length(problem.total_q, problem.batch, problem.seqlen_q) : problem.seqlen_q;
  const long long seqlen_k =
      problem.packed_keys ? mean_length(problem.total_k, problem.batch, problem.max_seqlen_k) : problem.max_seqlen_k;
  return {.tile_rows = seqlen_q,
          .steps = seen_in_window(seqlen_k, problem.window_left, 0),
          .sequences = problem.batch,
          .page_size = problem.paged() ? problem.page_size : 1};
}

Work launch_work(const DecodeProblem& problem) {
  const double bytes_per_column = 2.0 * bytes_of(problem.dtype);  // of K and of V
  const double amount = bytes_per_column * problem.batch * problem.heads_kv * problem.max_seqlen_k * problem.head_dim;
  return {.amount = amount, .is_bytes = true, .part_of_peak = 0.5};
}

double largest_operand(const DecodeProblem& problem) {
  const double queries = static_cast<double>(problem.batch) * problem.seqlen_q * problem.heads_q;
  const double keys = static_cast<double>(problem.pages) * problem.page_size * problem.heads_kv;
  return std::max(queries, keys) * problem.head_dim;
}

}  // namespace attune
