// Dropout on the emulator: the same mask in every kernel, against the float64 reference with that mask.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/choice/choice.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/emulator/case.hpp"
#include "tests/harness/backward_image.hpp"
#include "tests/harness/random_prefill.hpp"

namespace attune::emulator_tests {
namespace {

using testing::BackwardCase;
using testing::BackwardImage;
using testing::PrefillCase;

const Device a100 = device_of(*find_arch("sm_80"));
const Device h200 = device_of(*find_arch("sm_90"));

Problem dropped_problem(int head_dim, int seqlen_q, int seqlen_k) {
  return {.batch = 2,
          .heads_q = 2,
          .heads_kv = 1,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .dropout = true};
}

}  // namespace

TEST_CASE("prefill with dropout agrees with the reference on random problems") {
  HostKernels kernels;
  Random random(81);
  std::array<int, 2> ran{};
  for (std::uint64_t i = 1; i <= 60; ++i) {
    PrefillCase one = testing::random_prefill_case(random, 200);
    one.problem.dropout = true;
    one.problem.dtype = i % 2 == 0 ? Dtype::bf16 : Dtype::fp16;
    const bool hopper = i % 3 != 0;
    if (hopper && one.problem.head_dim % 64 != 0) continue;  // few kernels are enough
    CAPTURE(i);
    const OwnChoice own = choose_own(one.problem, hopper ? h200 : a100);
    REQUIRE(own.refusals.empty());
    REQUIRE(own.variant.dropout == 1);
    check_image(kernels[own.variant], one.image(i), i);
    ++ran.at(own.variant.family == prefill_sm90 ? 1 : 0);
  }
  CHECK(ran[0] > 10);
  CHECK(ran[1] > 10);
}

TEST_CASE("tiles of any sizes drop the same weights") {
  HostKernels kernels;
  const testing::CallImage image(dropped_problem(64, 150, 170), testing::Layout::bshd, 5);
  for (const auto& [B_r, B_c, warps] : {std::array{128, 64, 4}, {64, 48, 4}, {96, 80, 2}, {32, 16, 1}, {192, 32, 4}}) {
    CAPTURE(B_r);
    const Variant variant{.head_dim = 64, .B_r = B_r, .B_c = B_c, .warps = warps, .dropout = 1};
    check_image(kernels[variant], image, 7);
  }
}

TEST_CASE("gradients with dropout agree with the reference on random problems, whatever the order of sums") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(82);
  for (int i = 0; i < 24; ++i) {
    BackwardCase one = testing::random_backward_case(random, 150);
    one.prefill.problem.dropout = true;
    const BackwardImage image(one, random());
    Memory memory = image.memory();
    registry.run(image.args(memory.data()), nullptr);
    image.check(memory);
  }
}

TEST_CASE("kernels for compute capability 9.0 drop from gradients what the reference drops, whatever their tile") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  std::uint64_t seed = 5;
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const bool ragged : {false, true}) {
      BackwardCase one;
      Problem& problem = one.prefill.problem;
      problem = dropped_problem(head_dim, 150, 170);
      problem.causal = !ragged;
      if (ragged) {
        problem.ragged = true;
        problem.total_q = 210;
        problem.total_k = 205;
        one.prefill.sequences.cu_seqlens_q = {0, 140, 210};
        one.prefill.sequences.cu_seqlens_k = {0, 35, 205};
      }
      one.any_order = ragged;
      const OwnChoice own = choose_own(one.problem(), h200);
      CHECK(own.variant.family == backward_sm90);
      CHECK(own.variant.dropout == 1);
      const BackwardImage image(one, ++seed);
      Memory memory = image.memory();
      registry.run(image.args(memory.data()), nullptr);
      image.check(memory);
    }
  }
}

TEST_CASE("seed and offset in memory drop what the same values drop, and others drop others") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  const testing::CallImage image(dropped_problem(64, 40, 70), testing::Layout::bshd, 5);
  const auto output = [&](const attune_dropout& dropout) {
    Memory memory = image.memory();
    attune_prefill_args args = image.args(memory.data());
    args.dropout = dropout;
    registry.run(args, nullptr);
    return image.outputs(memory);
  };
  const attune_dropout given = usual_dropout(true);
  const std::array<std::int64_t, 2> state{given.seed, given.offset};
  const Outputs expected = output(given);
  CHECK(output({.p = given.p, .seed = 0, .offset = 0, .state = state.data()}) == expected);
  for (const std::int64_t other : {std::int64_t{1}, std::int64_t{1} << 32, std::int64_t{1} << 43}) {
    CHECK(output({.p = given.p, .seed = given.seed ^ other, .offset = given.offset, .state = nullptr}).o != expected.o);
    CHECK(output({.p = given.p, .seed = given.seed, .offset = given.offset ^ other, .state = nullptr}).o != expected.o);
  }
  CHECK(output({.p = given.p, .seed = 3, .offset = 0, .state = nullptr}).lse == expected.lse);
}

TEST_CASE("the mean of many outputs with dropout is the output without") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Problem problem = dropped_problem(32, 20, 40);
  const testing::CallImage dropped(problem, testing::Layout::bshd, 5);
  problem.dropout = false;
  const testing::CallImage whole(problem, testing::Layout::bshd, 5);
  Memory memory = whole.memory();
  registry.run(whole.args(memory.data()), nullptr);
  const Outputs exact = whole.outputs(memory);
  const auto value = [&](std::uint16_t bits) { return from_storage(problem.dtype, bits); };

  constexpr int calls = 60;
  std::vector<double> sum(exact.o.size());
  std::vector<double> squares(exact.o.size());
  for (int i = 0; i < calls; ++i) {
    memory = dropped.memory();
    attune_prefill_args args = dropped.args(memory.data());
    args.dropout = {.p = 0.4F, .seed = 9, .offset = 4 * i, .state = nullptr};
    registry.run(args, nullptr);
    const Outputs outputs = dropped.outputs(memory);
    for (std::size_t j = 0; j < sum.size(); ++j) {
      const double x = value(outputs.o[j]);
      sum[j] += x;
      squares[j] += x * x;
    }
  }
  double distance = 0;  // of all means, in units of their own error
  for (std::size_t j = 0; j < sum.size(); ++j) {
    const double mean = sum[j] / calls;
    const double variance = (squares[j] / calls - mean * mean) / (calls - 1);
    distance += (mean - value(exact.o[j])) * (mean - value(exact.o[j])) / variance;
  }
  // Its mean is a little above 1, as variances are estimated of few.
  CHECK(distance / static_cast<double>(sum.size()) == doctest::Approx(1.0).epsilon(0.2));
}

}  // namespace attune::emulator_tests
