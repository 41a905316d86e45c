// Trials: where their results are, and what their inputs hold.
#include "runtime/lab/trial.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace attune;

TEST_CASE("whatever is written around the results of a trial and its workspace is found") {
  const auto trial = make_trial(Problem{.batch = 1, .heads_q = 3, .heads_kv = 1, .seqlen_q = 5, .head_dim = 8}, 1);
  constexpr std::size_t workspace_words = 384;
  const Memory results = trial->poisoned_results(2 * workspace_words);
  CHECK(trial->outputs(results).guards_intact);
  std::size_t o = 0;
  std::size_t lse = 0;
  std::size_t anybodys = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    Memory changed = results;
    changed[i] = 0x3c00;
    const Outputs outputs = trial->outputs(changed);
    const bool in_o = std::ranges::count(outputs.o, poison) < 15 * 8;
    const bool in_lse = std::ranges::any_of(outputs.lse, [](float x) { return x == x; });
    o += in_o ? 1 : 0;
    lse += in_lse ? 1 : 0;
    anybodys += outputs.guards_intact ? 1 : 0;
    if (in_o || in_lse) CHECK(outputs.guards_intact);
  }
  CHECK(o == 15 * 8);
  CHECK(lse == 15);  // the upper half of a float makes it a NaN
  CHECK(anybodys == 15 * 8 + 2 * 15 + workspace_words);
}

TEST_CASE("a cache that is drawn is NaN where no sequence has a key, and nowhere else") {
  const auto poisoned_words = [](int pages, int keys) {
    const auto trial = make_trial(DecodeProblem{.batch = 2,
                                                .heads_q = 2,
                                                .heads_kv = 1,
                                                .head_dim = 16,
                                                .max_seqlen_k = keys,
                                                .page_size = 16,
                                                .pages = pages,
                                                .table_width = 2},
                                  1);
    const Memory inputs = trial->inputs();
    for (const double x : trial->expected(inputs).reference.o) CHECK(std::isfinite(x));
    return std::ranges::count(inputs, poison);
  };
  constexpr int row = 16;
  CHECK(poisoned_words(5, 20) - poisoned_words(4, 20) == 2 * 16 * row);  // a page of K and of V
  CHECK(poisoned_words(4, 20) - poisoned_words(4, 32) == 2 * 2 * 12 * row);
}

TEST_CASE("gradients that are timed have all of their inputs, though no forward pass has run") {
  const BackwardProblem problem{
      .batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 64, .seqlen_k = 96, .head_dim = 64};
  const Memory inputs = make_trial(problem, 1)->inputs();
  const std::size_t queries = 2 * 2 * 64;
  const std::size_t keys = 2 * 96;
  const std::size_t words = 3 * queries * 64 + 2 * keys * 64 + 2 * queries;  // q, o and dout, k and v, lse
  CHECK(std::ranges::count(inputs, poison) == std::ssize(inputs) - static_cast<std::ptrdiff_t>(words));
}
