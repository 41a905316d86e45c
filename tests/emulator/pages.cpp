// The ways in which prefill_sm90 reads keys and values from pages.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

const Device h200 = device_of(*find_arch("sm_90"));

/// A long sequence, an empty one, one that ends on a page, one that ends behind a block of keys.
const std::vector<std::int32_t> lengths{333, 0, 256, 129};

/// Their keys in pages that lie in no order; behind its last page a sequence's table names none, or any.
Sequences shuffled_pages(Problem& problem) {
  constexpr std::array<std::int32_t, 4> garbage{-1, std::numeric_limits<std::int32_t>::max(),
                                                std::numeric_limits<std::int32_t>::min(), 0};
  problem.paged = true;
  problem.batch = static_cast<int>(lengths.size());
  problem.seqlen_k = lengths.front();
  problem.table_width = (problem.seqlen_k + problem.page_size - 1) / problem.page_size + 2;
  problem.pages = 2 + std::accumulate(lengths.begin(), lengths.end(), 0, [&](int pages, int length) {
                    return pages + (length + problem.page_size - 1) / problem.page_size;
                  });
  Sequences sequences;
  sequences.seqused_k = lengths;
  int next = 0;
  for (const std::int32_t length : lengths) {
    for (int entry = 0; entry < problem.table_width; ++entry) {
      const bool used = entry * problem.page_size < length;
      // 7 goes through all pages, as their number is no multiple of it.
      const int stride = problem.pages % 7 == 0 ? 1 : 7;
      sequences.block_table.push_back(used ? next++ * stride % problem.pages
                                           : garbage[static_cast<std::size_t>(entry) % garbage.size()]);
    }
  }
  return sequences;
}

Problem problem_of(int page_size, int head_dim) {
  return {.dtype = Dtype::bf16,
          .heads_q = 4,
          .heads_kv = 2,
          .seqlen_q = 70,
          .head_dim = head_dim,
          .causal = true,
          .page_size = page_size};
}

}  // namespace

TEST_CASE("prefill_sm90 reads pages of any size, whatever is behind a sequence's last key and in its table") {
  HostKernels kernels;
  for (const int page_size : {16, 48, 64, 128, 256, 1, 5, 24}) {
    for (const testing::Layout layout : {testing::Layout::bshd, testing::Layout::bhsd}) {
      Problem problem = problem_of(page_size, 64);
      const Sequences sequences = shuffled_pages(problem);
      CAPTURE(page_size);
      const OwnChoice own = choose_own(problem, h200);
      REQUIRE(own.variant.family == prefill_sm90);
      CHECK(own.variant.page_multiple == (page_size % 16 == 0 ? 16 : 1));
      CHECK(check(own.variant).empty());
      check_image(kernels[own.variant], {problem, layout, 3, sequences}, 5);
    }
  }
}

TEST_CASE("prefill_sm90 reads pages with every head_dim, ragged queries and packed heads") {
  HostKernels kernels;
  for (const int page_size : {64, 256, 3}) {
    for (const int head_dim : {96, 128, 192, 256}) {
      Problem problem = problem_of(page_size, head_dim);
      problem.causal = head_dim != 128;
      Sequences sequences = shuffled_pages(problem);
      if (head_dim != 96) {
        problem.ragged = true;
        problem.seqlen_q = 140;
        sequences.cu_seqlens_q = {0, 140, 150, 150, 190};
        problem.total_q = 190;
      }
      CAPTURE(page_size);
      CAPTURE(head_dim);
      const OwnChoice own = choose_own(problem, h200);
      REQUIRE(own.variant.family == prefill_sm90);
      check_image(kernels[own.variant], {problem, testing::Layout::bshd, 4, sequences}, 5);
    }
    Problem problem = problem_of(page_size, 64);
    problem.heads_q = 8;
    const Sequences sequences = shuffled_pages(problem);
    Variant packed = choose_own(problem, h200).variant;
    packed.pack_gqa = 1;
    packed.gqa_ratio = 4;
    REQUIRE(check(packed).empty());
    check_image(kernels[packed], {problem, testing::Layout::bshd, 4, sequences}, 5);
  }
}

}  // namespace attune::emulator_tests
