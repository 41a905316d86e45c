#include "tests/harness/mixed_batch.hpp"

#include <algorithm>

namespace attune::testing {
namespace {

std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> starts{0};
  for (const std::int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

}  // namespace

Problem MixedBatch::problem(Problem problem) const {
  problem.batch = static_cast<int>(queries.size());
  problem.seqlen_q = std::ranges::max(queries);
  problem.seqlen_k = std::ranges::max(keys);
  problem.ragged = true;
  problem.total_q = starts_of(queries).back();
  return problem;
}

CallImage MixedBatch::contiguous(Problem problem, Sequences used) const {
  problem = this->problem(problem);
  used.cu_seqlens_q = starts_of(queries);
  used.cu_seqlens_k = starts_of(keys);
  problem.total_k = used.cu_seqlens_k.back();
  return {problem, Layout::bshd, 1, used};
}

CallImage MixedBatch::in_pages(Problem problem, int page_size) const {
  const auto pages_of = [&](int length) { return (length + page_size - 1) / page_size; };
  problem = this->problem(problem);
  problem.paged = true;
  problem.page_size = page_size;
  problem.table_width = pages_of(problem.seqlen_k);
  for (const std::int32_t length : keys) problem.pages += pages_of(length);
  Sequences sequences;
  sequences.cu_seqlens_q = starts_of(queries);
  sequences.seqused_k = keys;
  int next = problem.pages;
  for (const std::int32_t length : keys) {
    for (int entry = 0; entry < problem.table_width; ++entry)
      sequences.block_table.push_back(entry < pages_of(length) ? --next : -1);
  }
  return {problem, Layout::bshd, 1, sequences};
}

}  // namespace attune::testing
