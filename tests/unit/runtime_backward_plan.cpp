// Grids of the backward pass: heads in groups, and query heads that share keys in parts.
#include <doctest/doctest.h>

#include "generator/arch.hpp"
#include "generator/check.hpp"
#include "generator/variant.hpp"
#include "runtime/operations/backward/plan.hpp"

using namespace attune;

namespace {

const Device h200 = device_of(*find_arch("sm_90"));

Variant kernel(bool causal, bool deterministic) {
  Variant variant = families()[backward_sm90].defaults;
  variant.head_dim = 128;
  variant.causal = causal ? 1 : 0;
  variant.deterministic = deterministic ? 1 : 0;
  return variant;
}

BackwardProblem problem_of(int heads_q, int heads_kv, int seqlen, bool causal) {
  BackwardProblem problem;
  problem.batch = 1;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.head_dim = 128;
  problem.causal = causal;
  return problem;
}

}  // namespace

TEST_CASE("where tiles add in an order, two heads come together as long as L2 holds them") {
  const auto heads_together = [](int seqlen, bool deterministic) {
    return plan(kernel(true, deterministic), problem_of(16, 16, seqlen, true), h200).grid.x;
  };
  CHECK(heads_together(16384, false) == 1);
  CHECK(heads_together(16384, true) == 2);
  CHECK(heads_together(65536, true) == 1);  // half of that is all that fits
  CHECK(heads_together(2048, true) == heads_together(2048, false));
  CHECK(heads_together(2048, true) > 2);
}

TEST_CASE("heads that share keys have as many parts as give each multiprocessor two blocks, or eight under a mask") {
  const auto parts = [](int seqlen, bool causal) {
    return workspace_of(kernel(causal, true), problem_of(32, 1, seqlen, causal), h200).head_parts;
  };
  CHECK(parts(4096, false) == 8);
  CHECK(parts(4096, true) == 32);
  CHECK(parts(65536, false) == 1);
  CHECK(parts(65536, true) == 2);
  CHECK(workspace_of(kernel(true, true), problem_of(32, 32, 4096, true), h200).head_parts == 1);
}

TEST_CASE("no workspace of a Hopper kernel is larger than attune_backward_args says") {
  constexpr double row_bytes = 8 + 4 * 256 + 1.0 / 4;
  constexpr double key_bytes = 8 * 256 + 1;
  const auto padded = [](long long rows) { return (rows + 127) / 128 * 128; };
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const bool deterministic : {true, false}) {
      for (const int seqlen : {1, 128, 1000, 4096}) {
        for (const int heads_kv : {1, 32}) {
          for (const bool ragged : {true, false}) {
            BackwardProblem problem = problem_of(32, heads_kv, seqlen, true);
            problem.head_dim = head_dim;
            problem.batch = 3;
            problem.any_order = !deterministic;
            problem.ragged = ragged;
            if (ragged) problem.total_q = problem.total_k = seqlen + 2;
            const Need need = problem.ask_of(Operation::backward).need;
            const Variant variant = default_variant(backward_sm90, need, h200.shared_per_block);
            const long long rows = ragged ? padded(problem.total_q + 128LL * 3) : 3 * padded(seqlen);
            const double most = row_bytes * rows * 32 + key_bytes * 3 * heads_kv * padded(seqlen);
            CAPTURE(problem.text());
            CHECK(workspace_of(variant, problem, h200).bytes() <= most);
          }
        }
      }
    }
  }
}
