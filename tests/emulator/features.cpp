// Kernels with windows, soft caps and ragged batches on the emulator against the float64 reference.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "tests/emulator/case.hpp"
#include "tests/harness/random_prefill.hpp"

namespace attune::emulator_tests {
namespace {

using testing::make_wild;
using testing::PrefillCase;
using testing::random_paged_case;
using testing::random_prefill_case;

const Device h200 = device_of(*find_arch("sm_90"));

/// A ragged case whose sequences are all as long as the longest, one behind the other.
PrefillCase of_one_length(PrefillCase one) {
  Problem& problem = one.problem;
  one.layout = testing::Layout::bshd;  // there may be more queries than keys
  problem.total_q = problem.batch * problem.seqlen_q;
  problem.total_k = problem.batch * problem.seqlen_k;
  for (int i = 0; i <= problem.batch; ++i) {
    one.sequences.cu_seqlens_q.at(static_cast<std::size_t>(i)) = i * problem.seqlen_q;
    one.sequences.cu_seqlens_k.at(static_cast<std::size_t>(i)) = i * problem.seqlen_k;
  }
  return one;
}

/// Calls what a registry generates for the device with lengths that are none.
void check_wild_lengths(const Device& device, Random random) {
  HostKernels kernels;
  int ran = 0;
  for (std::uint64_t i = 1; i <= 300; ++i) {
    PrefillCase one = random_prefill_case(random, 150);
    Problem& problem = one.problem;
    if (!problem.ragged || problem.total_q == 0) continue;
    problem.head_dim = 64;  // few kernels are enough
    problem.dtype = Dtype::bf16;
    CAPTURE(i);
    CAPTURE(problem.text());
    const testing::CallImage image(problem, one.layout, i, one.sequences);
    // Where rows of O are two sequences', their blocks race; so they stay as they are, or one sequence is all.
    if (random.below(2) == 0) {
      problem.batch = 1;
      one.sequences.cu_seqlens_q.resize(2);
      make_wild(random, one.sequences.cu_seqlens_q, problem.total_q);
    }
    make_wild(random, one.sequences.cu_seqlens_k, problem.total_k);
    make_wild(random, one.sequences.seqused_k, problem.total_k);
    make_wild(random, one.sequences.seqused_q, problem.total_q);
    const OwnChoice own = choose_own(problem, device);
    Memory memory = image.memory();
    attune_prefill_args args = image.args(memory.data());
    args.cu_seqlens_q = one.sequences.cu_seqlens_q.data();
    args.cu_seqlens_k = one.sequences.cu_seqlens_k.data();
    if (args.seqused_k != nullptr) args.seqused_k = one.sequences.seqused_k.data();
    if (args.seqused_q != nullptr) args.seqused_q = one.sequences.seqused_q.data();
    args.batch = problem.batch;
    const emulator::Report report = run_emulated(FixedKernels{&kernels[own.variant]}, args, problem, {.seed = i});
    CHECK_MESSAGE(report.ok(), report.fault);
    ++ran;
  }
  CHECK(ran > 75);
}

}  // namespace

TEST_CASE("what a registry generates agrees with the reference on random problems, and no access of it is unsafe") {
  HostKernels kernels;
  Random random(11);
  for (std::uint64_t i = 1; i <= 80; ++i) {
    const PrefillCase one = random_prefill_case(random, 260);
    CAPTURE(i);
    const OwnChoice own = choose_own(one.problem, emulator::device());
    REQUIRE(own.refusals.empty());
    check_image(kernels[own.variant], one.image(i), i);
  }
}

TEST_CASE("what a registry generates for compute capability 9.0 agrees with the reference too") {
  HostKernels kernels;
  Random random(13);
  int ran = 0;
  int dense_lists = 0;
  int ragged_lists = 0;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    PrefillCase one = random_prefill_case(random, i % 8 == 0 ? 700 : 260);
    Problem& problem = one.problem;
    if (problem.head_dim % 32 != 0) continue;
    problem.dtype = problem.head_dim % 128 == 0 ? Dtype::fp16 : Dtype::bf16;  // few kernels are enough
    const OwnChoice own = choose_own(problem, h200);
    REQUIRE(own.refusals.empty());
    if (own.variant.family != prefill_sm90) continue;
    CAPTURE(i);
    check_image(kernels[own.variant], one.image(i), i);
    ++ran;
    if (own.variant.causal == 0) continue;
    Variant listed = own.variant;
    listed.tile_list = 1;
    if (problem.ragged) one = of_one_length(one);
    check_image(kernels[listed], one.image(i), i);
    ++(problem.ragged ? ragged_lists : dense_lists);
  }
  CHECK(ran > 30);
  CHECK(dense_lists > 3);
  CHECK(ragged_lists > 3);
}

TEST_CASE("wild lengths of a ragged batch lead to no access outside its tensors") {
  check_wild_lengths(emulator::device(), Random(12));
  check_wild_lengths(h200, Random(14));
}

TEST_CASE("kernels for a paged cache agree with the reference on random problems, and no access of them is unsafe") {
  HostKernels kernels;
  Random random(13);
  for (std::uint64_t i = 1; i <= 60; ++i) {
    const PrefillCase one = random_paged_case(random, 260);
    CAPTURE(i);
    const OwnChoice own = choose_own(one.problem, emulator::device());
    REQUIRE(own.refusals.empty());
    REQUIRE(own.variant.paged == 1);
    check_image(kernels[own.variant], one.image(i), i);
  }
}

TEST_CASE("wild tables and lengths lead to no access outside the pages of a cache") {
  HostKernels kernels;
  Random random(14);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    PrefillCase one = random_paged_case(random, 150);
    Problem& problem = one.problem;
    if (problem.stored_rows() == 0) continue;
    problem.head_dim = 64;  // few kernels are enough
    problem.dtype = Dtype::bf16;
    CAPTURE(i);
    CAPTURE(problem.text());
    const testing::CallImage image(problem, one.layout, i, one.sequences);
    make_wild(random, one.sequences.seqused_k, problem.seqlen_k);
    make_wild(random, one.sequences.block_table, problem.pages);
    const OwnChoice own = choose_own(problem, emulator::device());
    Memory memory = image.memory();
    attune_prefill_args args = image.args(memory.data());
    args.seqused_k = one.sequences.seqused_k.data();
    args.block_table = one.sequences.block_table.data();
    const emulator::Report report = run_emulated(FixedKernels{&kernels[own.variant]}, args, problem, {.seed = i});
    CHECK_MESSAGE(report.ok(), report.fault);
  }
}

TEST_CASE("every way of copying takes keys from pages") {
  HostKernels kernels;
  const Problem problem{.dtype = Dtype::bf16,
                        .batch = 2,
                        .heads_q = 2,
                        .heads_kv = 1,
                        .seqlen_q = 90,
                        .seqlen_k = 333,
                        .head_dim = 40,
                        .causal = true,
                        .paged = true,
                        .page_size = 24,
                        .pages = 28,
                        .table_width = 14};
  Sequences sequences;
  sequences.seqused_k = {333, 61};
  for (int page = problem.pages - 1; page >= 0; --page) sequences.block_table.push_back(page);
  const testing::CallImage image(problem, testing::Layout::bhsd, 3, sequences);
  const auto run = [&](int head_dim, int B_c, int warps, const std::function<void(Variant&)>& change) {
    Variant variant{.head_dim = head_dim, .B_r = 64, .B_c = B_c, .warps = warps, .paged = 1, .causal = 1};
    change(variant);
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    check_image(kernels[variant], image, 5);
  };
  run(48, 16, 4, [](Variant& v) { v.stages = 3; });  // more threads than a block has chunks
  run(64, 256, 1, [](Variant& v) { v.B_r = 16, v.stages = 1; });
  run(64, 48, 2, [](Variant& v) { v.stages = 1, v.eager_load = 0; });
  run(96, 32, 4, [](Variant& v) { v.stages = 1, v.eager_load = v.async_copy = 0; });
  run(80, 80, 4, [](Variant& v) { v.stages = 1, v.swizzle = 0; });
}

}  // namespace attune::emulator_tests
