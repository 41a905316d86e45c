// The order of a ragged batch's tiles, which kernels find out by themselves: batches of very different sequences.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

const Device a100 = device_of(*find_arch("sm_80"));
const Device h200 = device_of(*find_arch("sm_90"));

using Lengths = std::vector<int>;

/// Sequences with as many keys as queries, or with `more_keys` more; all heads share keys.
struct Batch {
  Lengths lengths;
  int more_keys = 0;
  std::vector<std::int32_t> seqused_q = {};
};

Lengths with_one_long(std::size_t sequences, std::size_t at) {
  Lengths lengths(sequences);
  for (std::size_t i = 0; i < sequences; ++i) lengths[i] = static_cast<int>(i * 7 % 20);
  lengths[at] = 500;
  return lengths;
}

/// More sequences than a warp has lanes, most of them empty: the first and the last, too.
Lengths mostly_empty() {
  Lengths lengths(97, 0);
  lengths[3] = 1;
  lengths[31] = 140;
  lengths[32] = 129;
  lengths[40] = 128;
  lengths[90] = 300;
  return lengths;
}

std::vector<Batch> batches() {
  Batch few_used{.lengths = with_one_long(40, 20)};
  for (std::size_t i = 0; i < few_used.lengths.size(); ++i)
    few_used.seqused_q.push_back(i % 4 == 0 ? std::min(few_used.lengths[i], 300) : 0);
  return {{.lengths = with_one_long(257, 0)}, {.lengths = with_one_long(70, 33), .more_keys = 150},
          {.lengths = with_one_long(65, 64)}, {.lengths = mostly_empty()},
          {.lengths = {0, 0, 200, 0, 0}},     few_used};
}

testing::CallImage image_of(const Batch& batch, Problem problem) {
  Sequences sequences;
  sequences.cu_seqlens_q = sequences.cu_seqlens_k = {0};
  for (const int length : batch.lengths) {
    sequences.cu_seqlens_q.push_back(sequences.cu_seqlens_q.back() + length);
    sequences.cu_seqlens_k.push_back(sequences.cu_seqlens_k.back() + length + batch.more_keys);
  }
  sequences.seqused_q = batch.seqused_q;
  problem.ragged = true;
  problem.batch = static_cast<int>(batch.lengths.size());
  problem.seqlen_q = std::ranges::max(batch.lengths);
  problem.seqlen_k = problem.seqlen_q + batch.more_keys;
  problem.total_q = sequences.cu_seqlens_q.back();
  problem.total_k = sequences.cu_seqlens_k.back();
  return {problem, testing::Layout::bshd, 1, sequences};
}

Problem problem_of(bool causal, int heads_q) {
  return {.dtype = Dtype::bf16, .heads_q = heads_q, .heads_kv = 1, .head_dim = 64, .causal = causal};
}

/// Runs a call with so many heads in a group, on seven blocks.
void check_groups(const EmulatedKernel& kernel, const testing::CallImage& image, int group_heads) {
  CAPTURE(group_heads);
  Memory memory = image.memory();
  const attune_prefill_args args = image.args(memory.data());
  PrefillPlan planned = plan(kernel.variant, image.problem(), h200);
  planned.group_heads = group_heads;
  planned.grid.x = 7;
  FixedKernels fixed{&kernel};
  const emulator::Report report = emulate(fixed, {.seed = 1}, [&](const Backend& backend) {
    run(args, image.problem(), kernel, planned, backend.executor, backend.stream);
  });
  REQUIRE_MESSAGE(report.ok(), report.fault);
  image.check(image.outputs(std::move(memory)), args.softmax_scale);
}

}  // namespace

TEST_CASE("one long sequence among many short ones, empty ones anywhere, and queries that do not count") {
  HostKernels kernels;
  for (const Device& device : {h200, a100}) {
    for (const Batch& batch : batches()) {
      const testing::CallImage image = image_of(batch, problem_of(true, 2));
      check_image(kernels[choose_own(image.problem(), device).variant], image, 1);
    }
  }
  const testing::CallImage full = image_of(batches()[1], problem_of(false, 2));
  check_image(kernels[choose_own(full.problem(), h200).variant], full, 1);
}

TEST_CASE("tiles that one warpgroup's rows hold are anyone's: of two or three, in step or not, Q in registers or not") {
  HostKernels kernels;
  // One more than a warpgroup has rows, and one less; two short ones in a row and three, so that each has each.
  const Batch batch{.lengths = {64, 65, 1, 63, 200, 2, 3, 4, 128, 5, 129, 0, 6}, .more_keys = 150};
  for (const int B_r : {128, 192}) {
    for (const int ping_pong : {0, 1}) {
      for (const int Q_columns : {0, 64}) {
        Variant variant = families()[prefill_sm90].defaults;
        variant.head_dim = variant.B_c = 64, variant.B_r = B_r, variant.stages = 2, variant.causal = variant.ragged = 1;
        variant.ping_pong = ping_pong, variant.Q_columns_in_registers = Q_columns;
        CAPTURE(variant.name());
        REQUIRE(check(variant).empty());
        check_image(kernels[variant], image_of(batch, problem_of(true, 2)), 1);
      }
    }
  }
}

TEST_CASE("a tile has all heads that share keys where a sequence has few queries: of any ratio, with any mask") {
  HostKernels kernels;
  for (const int ratio : {1, 3, 4, 8, 64, 65}) {
    const int most = stack_rows(ratio);
    CHECK(most * ratio <= 64);
    const Batch batch{.lengths = {most + 1, 1, most, 0, std::max(1, most - 1), 70}, .more_keys = 90};
    Problem problem = problem_of(ratio % 4 != 0, 2 * ratio);
    problem.heads_kv = 2;
    if (ratio == 3) problem.window_left = 40, problem.window_right = 2, problem.causal = false;
    if (ratio == 4) problem.softcap = 5;
    Variant variant = families()[prefill_sm90].defaults;
    variant.head_dim = variant.B_c = 64, variant.stages = 2, variant.ragged = 1;
    variant.causal = problem.causal ? 1 : 0, variant.window = ratio == 3 ? 1 : 0, variant.softcap = ratio == 4 ? 1 : 0;
    variant.B_r = ratio == 8 ? 64 : 192, variant.ping_pong = ratio == 8 ? 0 : 1;
    CAPTURE(variant.name());
    CAPTURE(ratio);
    REQUIRE(check(variant).empty());
    REQUIRE(stacks_heads(variant));
    check_image(kernels[variant], image_of(batch, problem), 1);
  }
}

TEST_CASE("groups of heads may begin and end inside a sequence, and have as many sequences as a warp has lanes") {
  HostKernels kernels;
  const testing::CallImage image = image_of({.lengths = mostly_empty()}, problem_of(true, 3));
  const EmulatedKernel& kernel = kernels[choose_own(image.problem(), h200).variant];
  REQUIRE(family_of(kernel.variant).tensor_maps);
  for (const int group_heads : {1, 2, 4, 31 * 3, 31 * 3 + 1}) check_groups(kernel, image, group_heads);
  // Stacked heads of a sequence stay together, whether it is the group's first or another.
  const testing::CallImage stacked = image_of({.lengths = {140, 16, 129, 3, 21, 22, 64}}, problem_of(true, 3));
  for (const int group_heads : {1, 2, 4, 5}) check_groups(kernel, stacked, group_heads);
}

TEST_CASE("a head's tiles without a mask come in runs, whole ones and what is left of them, of every sequence") {
  HostKernels kernels;
  const Batch batch{.lengths = {1100, 30, 0, 513, 640, 128, 512}};
  Variant variant = families()[prefill_sm90].defaults;
  variant.head_dim = variant.B_c = 64, variant.stages = 2, variant.causal = 0, variant.ragged = 1;
  REQUIRE(check(variant).empty());
  const testing::CallImage image = image_of(batch, problem_of(false, 3));
  for (const int group_heads : {2, 21}) check_groups(kernels[variant], image, group_heads);
}

}  // namespace attune::emulator_tests
