#include "runtime/lab/lengths.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/call/page_counts.hpp"

namespace attune {
namespace {

/// The i-th of a batch's lengths where they fall off as 1 / i, from `scale` times `longest` on; the first is `longest`.
int length_of(int i, int longest, double scale) {
  return i == 0 ? longest : static_cast<int>(std::min<double>(longest, scale * longest / (i + 1)));
}

}  // namespace

std::vector<std::int32_t> cumulative_lengths(int batch, int most, int total) {
  const int longest = std::min(most, total);
  const auto rows = [&](double scale) {
    long long sum = 0;
    for (int i = 0; i < batch; ++i) sum += length_of(i, longest, scale);
    return sum;
  };
  constexpr int finest = -30;
  double scale = 0;
  for (int exponent = std::bit_width(static_cast<unsigned>(batch)); exponent >= finest; --exponent) {
    const double step = std::ldexp(1.0, exponent);
    if (rows(scale + step) <= total) scale += step;
  }
  std::vector<std::int32_t> result{0};
  for (int i = 0; i < batch; ++i) result.push_back(result.back() + length_of(i, longest, scale));
  return result;
}

int usual_total(int batch, int longest) {
  constexpr long long most = std::numeric_limits<int>::max();
  long long total = 0;
  for (int i = 0; i < batch && total < most; ++i) total += length_of(i, longest, 1);
  return static_cast<int>(std::min(total, most));
}

void make_ragged(Problem& problem) {
  problem.ragged = true;
  problem.total_q = usual_total(problem.batch, problem.seqlen_q);
  problem.total_k = usual_total(problem.batch, problem.seqlen_k);
}

void make_paged(Problem& problem) {
  problem.paged = true;
  problem.page_size = 16;
  problem.table_width = std::max(1, pages_of(problem.seqlen_k, problem.page_size));
  problem.pages = all_pages(problem.batch, problem.table_width);
  problem.total_k = 0;
}

Sequences sequences_of(const Problem& problem) {
  Sequences result;
  if (problem.ragged) result.cu_seqlens_q = cumulative_lengths(problem.batch, problem.seqlen_q, problem.total_q);
  if (problem.ragged && !problem.paged) {
    result.cu_seqlens_k = cumulative_lengths(problem.batch, problem.seqlen_k, problem.total_k);
  }
  if (!problem.paged) return result;
  for (int i = 0; i < problem.batch; ++i) result.seqused_k.push_back(problem.seqlen_k / (i + 1));
  for (int page = problem.pages - 1; page >= 0; --page) result.block_table.push_back(page);
  return result;
}

}  // namespace attune
