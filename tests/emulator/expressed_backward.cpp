// Gradients of attention whose scores and masks expressions say, on the emulator against the float64 reference.
#include <doctest/doctest.h>

#include <array>
#include <string_view>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "tests/harness/backward_image.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::emulator_tests {
namespace {

using testing::BackwardCase;
using testing::BackwardImage;
using testing::Layout;

/// Runs it with the kernels that a device would have, and CHECKs what they leave.
void check(HostKernels& kernels, const BackwardCase& one, const Device& device, std::uint64_t seed) {
  const BackwardImage image(one, seed);
  CAPTURE(one.score);
  CAPTURE(one.mask);
  const BackwardProblem problem = one.problem();
  const OwnChoice own = choose_own(problem, device);
  REQUIRE(own.refusals.empty());
  CAPTURE(own.variant.name());
  FixedKernels found{&kernels[own.variant]};
  const bool adds = workspace_of(own.variant, problem, device).dq_bytes != 0;
  found.add(kernels[choose_own(problem.rows(), device).variant]);
  found.add(
      kernels[adds ? choose_own(problem.conversion(), device).variant : choose_own(problem.queries(), device).variant]);
  Memory memory = image.memory();
  const attune_backward_args args = image.args(memory.data());
  const emulator::Report report = run_emulated(found, args, check_arguments(args), {.seed = seed});
  REQUIRE_MESSAGE(report.ok(), report.fault);
  image.check(memory);
}

const Device a100 = device_of(*find_arch("sm_80"));
const Device h200 = device_of(*find_arch("sm_90"));

BackwardCase dense(const Problem& problem) {
  BackwardCase one;
  one.prefill.problem = problem;
  return one;
}

}  // namespace

TEST_CASE(
    "gradients of what models use agree with the reference: slopes, documents, prefixes, windows, trees, biases") {
  constexpr std::array<std::array<const char*, 2>, 7> named{{
      {"s + slope[h] * (k - p) where slope: fp32[head]", ""},
      {"s - slope[b, h] * abs(p - k) where slope: fp32[batch, head]", "k <= p"},
      {"", "k <= p and document[b, p] == document[b, k] where document: int32[batch, position]"},
      {"", "k <= p or k < prefix[b] where prefix: int32[batch]"},
      {"", "k <= p and (p - k < 130 or k < 4)"},
      {"s + bias[h, max(p - k, 0)] where bias: fp32[head, 100]", "(k // 64 + p // 64) % 3 != 0"},
      {"", "k <= p - q or tree[b, q, k - (p - q)] % 2 == 1 where tree: int32[batch, query, 150]"},
  }};
  constexpr std::array head_dims{64, 96, 128, 192, 256};
  HostKernels kernels;
  std::uint64_t seed = 0;
  for (const auto& [score, mask] : named) {
    for (const Device& device : {a100, h200}) {
      ++seed;
      BackwardCase one = dense({.batch = 1,
                                .heads_q = 2,
                                .heads_kv = 1,
                                .seqlen_q = seed % 3 == 0 ? 140 : 330,
                                .seqlen_k = 400,
                                .head_dim = head_dims.at(seed % head_dims.size())});
      one.score = score;
      one.mask = mask;
      one.any_order = seed % 4 < 2;  // of the two devices one, of each device half of the expressions
      one.has_dlse = one.any_order;
      check(kernels, one, device, seed);
    }
  }
}

TEST_CASE(
    "on 8.0, where warps share tiles of keys for sums in any order, and on 8.6 gradients agree with the reference") {
  HostKernels kernels;
  std::uint64_t seed = 40;
  for (const std::string_view gpu : {"sm_80", "sm_86"}) {
    for (const int head_dim : {96, 128, 192, 256}) {
      BackwardCase one = dense({.batch = 2,
                                .heads_q = 2,
                                .heads_kv = 1,
                                .seqlen_q = 150,
                                .seqlen_k = 200,
                                .head_dim = head_dim,
                                .causal = head_dim == 128});
      if (head_dim == 192) one.mask = "(k // 16 + p // 16) % 3 != 0";
      if (head_dim == 256) one.score = "s + slope[h] * (k - p) where slope: fp32[head]";
      one.any_order = true;
      one.has_dlse = true;
      check(kernels, one, device_of(*find_arch(gpu)), ++seed);
    }
  }
}

TEST_CASE("gradients of random additive scores and masks agree with the reference") {
  HostKernels kernels;
  Random random(62);
  for (int i = 0; i < testing::expression_count(); ++i) {
    const BackwardCase one = testing::random_expressed_backward_case(random, 150);
    check(kernels, one, i % 2 == 0 ? h200 : a100, random());
  }
}

TEST_CASE(
    "gradients of a mask that hides most blocks of a long sequence agree with the reference, in turns and in any "
    "order") {
  HostKernels kernels;
  for (const Device& device : {a100, h200}) {
    for (const bool any_order : {false, true}) {
      BackwardCase one = dense(
          {.batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 600, .seqlen_k = 700, .head_dim = 64, .causal = true});
      one.mask = "(k // 128 + p // 128 + h) % 3 == 0 or p - k < 20";
      one.any_order = any_order;
      check(kernels, one, device, 7);
    }
  }
}

TEST_CASE("queries that a mask leaves no key, and keys that it hides from all queries, have gradients of zero") {
  HostKernels kernels;
  for (const Device& device : {a100, h200}) {
    BackwardCase one =
        dense({.batch = 2, .heads_q = 2, .heads_kv = 2, .seqlen_q = 300, .seqlen_k = 300, .head_dim = 64});
    one.mask = "q > 150 and k < 130";
    check(kernels, one, device, 3);
    one.mask = "q < 0";
    check(kernels, one, device, 3);
  }
}

TEST_CASE("a score that is not s and something is refused with the rule") {
  BackwardCase one = dense({.seqlen_q = 64, .seqlen_k = 64, .head_dim = 64});
  for (const char* const score :
       {"2 * s", "s + s", "max(s, 0.0)", "select(s > 0, s, s)", "-s", "tanh(s)", "select(k <= p, s, 0.5)"}) {
    one.score = score;
    CAPTURE(score);
    const OwnChoice own = choose_own(one.problem(), h200);
    REQUIRE(!own.refusals.empty());
    CHECK(own.refusals.front().find("derivative") != std::string::npos);
  }
  one.score = "s + real(k)";
  CHECK(choose_own(one.problem(), h200).refusals.empty());
  one.prefill.problem.softcap = 3;
  CHECK(!choose_own(one.problem(), h200).refusals.empty());
}

}  // namespace attune::emulator_tests
