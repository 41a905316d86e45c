#include "tests/harness/random_prefill.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/harness/random_choice.hpp"

namespace attune::testing {
namespace {

/// -1, none, few, as many as there are at most, or more.
int random_bound(Random& random, int most) {
  switch (random.below(6)) {
    case 0:
      return -1;
    case 1:
      return 0;
    case 2:
      return most + up_to(random, 5);
    case 3:
      return up_to(random, most);
    default:
      return up_to(random, 40);
  }
}

/// A length of a sequence: often none, at most `most`.
int random_length(Random& random, int most) { return random.below(4) == 0 ? 0 : up_to(random, most); }

/// Sequences one after the other, with a gap before the first and one after the last.
std::vector<std::int32_t> random_cu_seqlens(Random& random, int batch, int& longest, int& total) {
  std::vector<std::int32_t> result{up_to(random, 9)};
  const int most = longest;
  longest = 0;
  for (int i = 0; i < batch; ++i) {
    const int length = random_length(random, most);
    longest = std::max(longest, length);
    result.push_back(result.back() + length);
  }
  total = result.back() + up_to(random, 9);
  return result;
}

void make_ragged(Random& random, PrefillCase& one) {
  Problem& problem = one.problem;
  problem.ragged = true;
  problem.batch = 1 + up_to(random, 5);
  Sequences& sequences = one.sequences;
  sequences.cu_seqlens_q = random_cu_seqlens(random, problem.batch, problem.seqlen_q, problem.total_q);
  if (random.below(4) == 0) {  // as in self-attention, and so that rows can be packed
    sequences.cu_seqlens_k = sequences.cu_seqlens_q;
    problem.seqlen_k = problem.seqlen_q;
    problem.total_k = problem.total_q;
    if (random.below(2) == 0) one.layout = Layout::packed;
  } else {
    sequences.cu_seqlens_k = random_cu_seqlens(random, problem.batch, problem.seqlen_k, problem.total_k);
  }
  // What is promised about the longest is no more than an upper bound.
  problem.seqlen_q += up_to(random, 70);
  problem.seqlen_k += up_to(random, 70);
  if (random.below(2) == 0) {
    for (int i = 0; i < problem.batch; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const int length = sequences.cu_seqlens_k[at + 1] - sequences.cu_seqlens_k[at];
      sequences.seqused_k.push_back(random.below(3) == 0 ? length : up_to(random, length));
    }
  }
  if (random.below(2) == 0) one.poisoned = up_to(random, problem.batch - 1);
  if (random.below(3) != 0) return;
  for (int i = 0; i < problem.batch; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int length = sequences.cu_seqlens_q[at + 1] - sequences.cu_seqlens_q[at];
    sequences.seqused_q.push_back(one_of(random, std::array{length, 0, up_to(random, length), up_to(random, length)}));
  }
}

/// Pages in any order, of which later sequences may begin with those of the first. Behind a sequence's last key entries
/// name no page or any.
std::vector<std::int32_t> random_table(Random& random, const Problem& problem, const std::vector<std::int32_t>& lengths,
                                       bool shared) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(problem.pages));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  constexpr std::array<std::int32_t, 4> nowhere{-1, std::numeric_limits<std::int32_t>::max(),
                                                std::numeric_limits<std::int32_t>::min(), 0};
  auto next = order.begin();
  std::vector<std::int32_t> table;
  for (const std::int32_t length : lengths) {
    const int both = std::min(length, lengths.front()) / problem.page_size;
    const int prefix = shared && !table.empty() ? up_to(random, both) : 0;
    for (int entry = 0; entry < problem.table_width; ++entry) {
      if (static_cast<long long>(entry) * problem.page_size >= length) {
        table.push_back(one_of(random, nowhere));
      } else {
        table.push_back(entry < prefix ? table[static_cast<std::size_t>(entry)] : *next++);
      }
    }
  }
  return table;
}

void make_paged(Random& random, PrefillCase& one) {
  Problem& problem = one.problem;
  problem.paged = true;
  problem.page_size = one_of(random, std::array{1, 3, 16, 48, 64, 128, 256});
  problem.table_width = (problem.seqlen_k + problem.page_size - 1) / problem.page_size + 1;
  Sequences& sequences = one.sequences;
  sequences.cu_seqlens_k.clear();
  problem.total_k = 0;
  sequences.seqused_k.clear();
  for (int i = 0; i < problem.batch; ++i) {
    sequences.seqused_k.push_back(random.below(4) == 0 ? problem.seqlen_k : random_length(random, problem.seqlen_k));
    problem.pages += (sequences.seqused_k.back() + problem.page_size - 1) / problem.page_size;
  }
  problem.pages += up_to(random, 3);
  sequences.block_table = random_table(random, problem, sequences.seqused_k, one.poisoned < 0);
  if (one.layout == Layout::packed) one.layout = Layout::bhsd;
  problem.mappable_pages = one.layout != Layout::gaps || random.below(2) == 0;
}

}  // namespace

CallImage PrefillCase::image(std::uint64_t seed) const {
  CallImage result(problem, layout, seed, sequences);
  if (poisoned >= 0) result.poison_sequence(poisoned);
  return result;
}

void make_wild(Random& random, std::vector<std::int32_t>& cu_seqlens, int total) {
  constexpr std::array extremes{std::numeric_limits<std::int32_t>::min(), -1, std::numeric_limits<std::int32_t>::max()};
  for (std::int32_t& entry : cu_seqlens) {
    switch (random.below(3)) {
      case 0:
        entry = one_of(random, extremes);
        break;
      case 1:
        entry = up_to(random, 3 * total + 100) - total;
        break;
      default:
        break;
    }
  }
}

PrefillCase random_prefill_case(Random& random, int most_rows) {
  PrefillCase one;
  Problem& problem = one.problem;
  problem.dtype = one_of(random, std::array{Dtype::fp16, Dtype::bf16});
  problem.head_dim = one_of(random, std::array{40, 59, 64, 72, 96, 111, 128, 192, 256});
  problem.batch = 1 + up_to(random, 2);
  problem.heads_kv = 1 + up_to(random, 1);
  problem.heads_q = problem.heads_kv * one_of(random, std::array{1, 2, 3, 8});
  problem.seqlen_q = 1 + up_to(random, most_rows - 1);
  problem.seqlen_k = random.below(3) == 0 ? problem.seqlen_q : up_to(random, most_rows);
  problem.causal = random.below(4) == 0;
  one.layout = one_of(random, std::array{Layout::bshd, Layout::bhsd, Layout::gaps});
  if (random.below(2) == 0) make_ragged(random, one);
  if (random.below(3) != 0) {
    set_window(problem, random_bound(random, problem.seqlen_k), random_bound(random, problem.seqlen_q));
  }
  if (random.below(3) == 0) problem.softcap = one_of(random, std::array{0.5F, 5.0F, 30.0F, 1000.0F});
  return one;
}

PrefillCase random_paged_case(Random& random, int most_rows) {
  PrefillCase one = random_prefill_case(random, most_rows);
  make_paged(random, one);
  return one;
}

}  // namespace attune::testing
