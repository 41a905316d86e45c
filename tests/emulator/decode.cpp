// The decode and combine kernels on the emulator against the float64 reference.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/decode_image.hpp"
#include "tests/harness/random_prefill.hpp"

namespace attune::emulator_tests {
namespace {

using testing::DecodeCase;
using testing::DecodeImage;
using testing::only_sequence;
using testing::random_append_case;
using testing::random_decode_case;
using testing::random_leftpad_case;
using testing::random_packed_case;
using testing::random_ragged_case;

/// How many of so many random problems are drawn: under sanitizers, which slow the emulator down to a tenth, a quarter.
constexpr std::uint64_t share_of(std::uint64_t problems) { return ATTUNE_SANITIZED ? problems / 4 : problems; }

/// The shipped kernels, compiled on first need.
class Kernels {
 public:
  Kernels() {
    const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
    const Result<Collection> collected =
        collect(std::vector{specs / "decode.yaml", specs / "combine.yaml", specs / "store_kv.yaml"});
    REQUIRE(collected.ok());
    for (const Wanted& one : collected.value.wanted) {
      const Operation operation = family_of(one.variant).operation;
      (operation == Operation::decode    ? decode_
       : operation == Operation::combine ? combine_
                                         : store_)
          .push_back(one.variant);
    }
  }

  /// A shipped kernel, or one that differs from it in what is compiled at run time alone.
  [[nodiscard]] Variant variant_for(const DecodeProblem& problem) const {
    DecodeProblem plain = problem;
    plain.softcap = 0;
    plain.rotary = Rotary::none;
    plain.ragged = false;
    plain.head_dim = padded_head_dim(problem.head_dim);
    Variant variant = choose(decode_, plain, emulator::device()).value();
    variant.softcap = problem.softcap > 0 ? 1 : 0;
    variant.rotary = static_cast<int>(problem.rotary);
    variant.ragged = problem.ragged ? 1 : 0;
    variant.cut_rows = is_cut(problem.head_dim) ? 1 : 0;
    return variant;
  }

  FixedKernels find(const DecodePlan& plan, const DecodeProblem& problem) {
    FixedKernels kernels{&kernels_[plan.variant]};
    if (problem.appends()) {
      StoreProblem whole = problem.store();
      whole.head_dim = padded_head_dim(whole.head_dim);
      Variant store = choose(store_, whole, emulator::device()).value();
      store.cut_rows = is_cut(problem.head_dim) ? 1 : 0;
      kernels.add(kernels_[store]);
    }
    if (!plan.combines()) return kernels;
    CombineProblem plain = problem.merge();
    plain.ragged = false;
    Variant combine = choose(combine_, plain, emulator::device()).value();
    combine.ragged = problem.ragged ? 1 : 0;
    kernels.add(kernels_[combine]);
    return kernels;
  }

 private:
  std::vector<Variant> decode_;
  std::vector<Variant> combine_;
  std::vector<Variant> store_;
  HostKernels kernels_;
};

/// Runs a planned call over a workspace of NaN; what was found.
std::string run(Kernels& kernels, const DecodeProblem& problem, attune_decode_args args, const DecodePlan& plan,
                std::uint64_t seed) {
  std::vector<float> workspace(plan.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  args.workspace = workspace.data();
  args.workspace_bytes = plan.workspace_bytes;
  FixedKernels found = kernels.find(plan, problem);
  return emulate(found, {.seed = seed},
                 [&](const Backend& backend) { run(args, problem, found.kernel_for(problem), plan, backend); })
      .fault;
}

std::string run(Kernels& kernels, const DecodeProblem& problem, const attune_decode_args& args, std::uint64_t seed) {
  return run(kernels, problem, args, plan(kernels.variant_for(problem), problem, emulator::device()), seed);
}

void check_call(Kernels& kernels, const DecodeCase& one, const DecodePlan& planned, std::uint64_t seed) {
  const DecodeImage image(one, seed);
  Memory memory = image.memory();
  const std::string fault = run(kernels, one.problem, image.args(memory.data()), planned, seed);
  REQUIRE_MESSAGE(fault.empty(), fault);
  image.check(memory);
}

void check_random_problems(std::uint64_t seed, std::uint64_t count, DecodeCase (&random_case)(Random&, int)) {
  Kernels kernels;
  Random random(seed);
  for (std::uint64_t i = 0; i < share_of(count); ++i) {
    const DecodeCase one = random_case(random, 300);
    const DecodeProblem& problem = one.problem;
    CAPTURE(one.text());
    DecodePlan planned = plan(kernels.variant_for(problem), problem, emulator::device());
    // Left alone, `auto` gives each step a part of its own: the emulated GPU is far larger than the problems.
    if (problem.splits == 0 && i % 3 != 0)
      planned = with_parts(planned, problem, emulator::device(), 1 + static_cast<int>(random.below(6)));
    planned.warp_rows = i % 2 == 0;
    CAPTURE(planned.parts);
    CAPTURE(planned.warp_rows);
    check_call(kernels, one, planned, i + 1);
  }
}

}  // namespace

TEST_CASE("shipped decode kernels agree with the reference on random problems, and no access of them is unsafe") {
  check_random_problems(7, 60, random_decode_case);
}

TEST_CASE("the parts of a sequence as a cluster agree with the reference on random problems, and leave no workspace") {
  Kernels kernels;
  Random random(12);
  std::array<int, 2> clusters{};
  for (std::uint64_t i = 0; i < 90; ++i) {
    DecodeCase one = std::array{random_decode_case, random_append_case, random_ragged_case}.at(i % 3)(random, 300);
    if (i % 4 == 3) pad_at_the_left(random, one);
    CAPTURE(one.text());
    Variant variant = kernels.variant_for(one.problem);
    variant.cluster = 1;
    variant.interleave = static_cast<int>(i / 3 % 2);
    if (!check(variant).empty()) continue;  // more rows than keys to lie where those were
    const DecodePlan planned = plan(variant, one.problem, emulator::device());
    CAPTURE(planned.splits);
    CHECK(planned.workspace_bytes == 0);
    ++clusters.at(planned.splits > 1 ? 1 : 0);
    check_call(kernels, one, planned, i + 1);
  }
  CHECK(std::ranges::min(clusters) > 10);
}

TEST_CASE("the shipped kernels of clusters agree with the reference on random problems, in several parts") {
  const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{specs / "decode_sm90.yaml"});
  REQUIRE(collected.ok());
  std::vector<Variant> shipped;
  for (const Wanted& one : collected.value.wanted) shipped.push_back(one.variant);
  Kernels kernels;
  Random random(15);
  std::uint64_t parted = 0;
  for (std::uint64_t i = 0; i < share_of(24); ++i) {
    DecodeCase one = random_decode_case(random, 1100);
    DecodeProblem& problem = one.problem;
    problem.seqlen_q = 1;
    problem.heads_q = problem.heads_kv * 4;
    problem.softcap = 0;
    problem.splits = 0;
    problem.head_dim = padded_head_dim(problem.head_dim);
    CAPTURE(one.text());
    const std::optional<Variant> variant = choose(shipped, problem, emulator::device());
    REQUIRE(variant);
    const DecodePlan planned = plan(*variant, problem, emulator::device());
    parted += planned.splits > 1 ? 1 : 0;
    check_call(kernels, one, planned, i + 1);
  }
  CHECK(parted >= share_of(24) / 3);
}

TEST_CASE("kernels for one ratio of heads, and of one query, agree with the reference on random problems") {
  Kernels kernels;
  Random random(14);
  for (std::uint64_t i = 0; i < share_of(60); ++i) {
    DecodeCase one = std::array{random_decode_case, random_append_case, random_ragged_case}.at(i % 3)(random, 300);
    const int ratio = i % 4 == 0 ? 20 : 4;  // of two tiles of rows, and of one
    const bool one_query = i / 2 % 2 == 0;
    if (one_query) {
      one.problem.seqlen_q = 1;
      one.problem.head_dim = (one.problem.head_dim + 15) / 16 * 16;  // the kernel's own
    }
    one.problem.heads_q = ratio * one.problem.heads_kv;
    CAPTURE(one.text());
    Variant variant = kernels.variant_for(one.problem);
    variant.B_r = 16;
    if (one_query) variant.head_dim = one.problem.head_dim;
    variant.gqa_ratio = ratio;
    variant.one_query = one_query ? 1 : 0;
    variant.cluster = static_cast<int>(i / 3 % 2);
    check_call(kernels, one, plan(variant, one.problem, emulator::device()), i + 1);
  }
}

TEST_CASE("kernels of their own head_dim agree with the reference, whatever rows begin within") {
  Kernels kernels;
  Random random(16);
  constexpr std::array head_dims{35, 40, 48, 72, 80, 88, 104, 112, 136, 152, 160, 168, 200, 216, 232, 237};
  for (std::uint64_t i = 0; i < (ATTUNE_SANITIZED ? 1 : 2) * head_dims.size(); ++i) {
    DecodeCase one = random_decode_case(random, 300);
    one.problem.head_dim = head_dims.at(i % head_dims.size());
    one.problem.dtype = Dtype::bf16;
    one.problem.heads_q = one.problem.heads_kv * (one.problem.heads_q / one.problem.heads_kv == 16 ? 8 : 4);
    one.problem.seqlen_q = 1;
    CAPTURE(one.text());
    DecodePlan planned = plan(choose_own(one.problem, emulator::device()).variant, one.problem, emulator::device());
    if (one.problem.splits == 0)
      planned = with_parts(planned, one.problem, emulator::device(), 1 + static_cast<int>(random.below(4)));
    check_call(kernels, one, planned, i + 1);
  }
}

TEST_CASE(
    "warps with rows of their own agree with the reference on random problems, and no barrier of theirs is missing") {
  Kernels kernels;
  Random random(17);
  struct Tile {
    int head_dim;
    int warps;
    int warp_rows;
    int B_c;
    int stages;
  };
  constexpr std::array tiles{Tile{64, 5, 16, 64, 2}, Tile{72, 3, 32, 64, 1}, Tile{168, 5, 16, 64, 1},
                             Tile{200, 2, 16, 64, 1}, Tile{256, 8, 16, 32, 1}};
  for (std::uint64_t i = 0; i < share_of(60); ++i) {
    DecodeCase one = random_decode_case(random, 300);
    const Tile& tile = tiles.at(i % tiles.size());
    one.problem.dtype = Dtype::bf16;
    one.problem.head_dim = tile.head_dim;
    one.problem.heads_q = one.problem.heads_kv * (i % 2 == 0 ? 71 : 20);
    one.problem.seqlen_q = 1 + static_cast<int>(random.below(2));
    CAPTURE(one.text());
    Variant variant = choose_own(one.problem, emulator::device()).variant;
    variant.split_rows = 1;
    variant.warps = tile.warps;
    variant.B_r = tile.warp_rows * tile.warps;
    variant.B_c = tile.B_c;
    variant.stages = tile.stages;
    variant.cluster = i / 5 % 3 == 2 ? 1 : 0;
    if (!check(variant).empty()) variant.cluster = 0;
    REQUIRE(check(variant).empty());
    DecodePlan planned = plan(variant, one.problem, emulator::device());
    if (one.problem.splits == 0 && variant.cluster == 0) {
      planned = with_parts(planned, one.problem, emulator::device(), 1 + static_cast<int>(random.below(4)));
    }
    check_call(kernels, one, planned, i + 1);
  }
}

TEST_CASE("splits that have a sequence's keys in turn agree with the reference on random problems") {
  Kernels kernels;
  Random random(13);
  for (std::uint64_t i = 0; i < share_of(60); ++i) {
    DecodeCase one = std::array{random_decode_case, random_append_case, random_ragged_case}.at(i % 3)(random, 900);
    one.problem.splits = 2 + static_cast<int>(random.below(4));
    if (i % 4 == 3) pad_at_the_left(random, one);
    CAPTURE(one.text());
    Variant variant = kernels.variant_for(one.problem);
    variant.interleave = 1;
    check_call(kernels, one, plan(variant, one.problem, emulator::device()), i + 1);
  }
}

TEST_CASE("decode with new keys, rotations and softcaps agrees with the reference on random problems") {
  check_random_problems(8, 60, random_append_case);
}

TEST_CASE("ragged decode agrees with the reference on random problems, and writes no row of no sequence") {
  check_random_problems(9, 60, random_ragged_case);
}

TEST_CASE("decode of packed keys agrees with the reference on random problems, and reads no key that does not count") {
  check_random_problems(11, 60, random_packed_case);
}

TEST_CASE(
    "sequences padded at the left agree with the reference, new keys and rotations included, and no pad reaches a "
    "result") {
  check_random_problems(15, 80, random_leftpad_case);
}

TEST_CASE("whatever cu_seqlens_q, cu_seqlens_k and seqlens_k hold, ragged decode stays inside its tensors") {
  Kernels kernels;
  Random random(10);
  for (std::uint64_t i = 0; i < share_of(60); ++i) {
    DecodeCase one = i % 2 == 0 ? random_ragged_case(random, 200) : random_packed_case(random, 200);
    one.problem.dtype = Dtype::bf16;
    one.problem.head_dim = 64;
    const DecodeImage image(one, i + 1);
    Memory memory = image.memory();
    attune_decode_args args = image.args(memory.data());
    std::vector<std::int32_t> cu_seqlens_q = one.cu_seqlens_q;
    testing::make_wild(random, cu_seqlens_q, one.problem.total_q);
    args.cu_seqlens_q = cu_seqlens_q.data();
    std::vector<std::int32_t> cu_seqlens_k = one.cu_seqlens_k;
    std::vector<std::int32_t> lengths = one.lengths;
    if (one.problem.packed_keys) {
      testing::make_wild(random, cu_seqlens_k, one.problem.total_k);
      testing::make_wild(random, lengths, one.problem.total_k);
      args.cu_seqlens_k = cu_seqlens_k.data();
      if (one.has_lengths) args.seqlens_k = lengths.data();
    }
    CAPTURE(one.text());
    const std::string fault = run(kernels, one.problem, args, i + 1);
    // Two sequences that are told of the same rows both write them: wrong numbers, which is what they asked for.
    const bool stays_inside = fault.empty() || fault.find("race: writes") != std::string::npos;
    CHECK_MESSAGE(stays_inside, fault);
    CHECK(image.outputs(memory).guards_intact);
  }
}

TEST_CASE("with a number of splits a sequence has the same bits alone and in a batch") {
  Kernels kernels;
  const DecodeCase one{.problem = {.batch = 3,
                                   .heads_q = 4,
                                   .heads_kv = 1,
                                   .head_dim = 64,
                                   .max_seqlen_k = 300,
                                   .page_size = 16,
                                   .pages = 80,
                                   .table_width = 20,
                                   .splits = 2},
                       .lengths = {250, 3, 300}};
  const DecodeImage image(one, 5);
  Memory together = image.memory();
  REQUIRE(run(kernels, one.problem, image.args(together.data()), 1).empty());
  Memory alone = image.memory();
  DecodeProblem single = one.problem;
  single.batch = 1;
  for (int sequence = 0; sequence < one.problem.batch; ++sequence) {
    REQUIRE(run(kernels, single, only_sequence(image.args(alone.data()), sequence), 1).empty());
  }
  const bool same = together == alone;
  CHECK(same);
}

TEST_CASE("with as many steps of keys as splits or more, no part of a sequence is without keys") {
  Kernels kernels;
  DecodeCase one{.problem = {.batch = 1, .heads_q = 1, .heads_kv = 1, .head_dim = 64, .pages = 1, .splits = 5},
                 .lengths = {},
                 .has_table = false};
  const int steps = one.problem.splits + 1;  // in parts of two, three parts would have them all
  one.problem.max_seqlen_k = one.problem.page_size = steps * kernels.variant_for(one.problem).B_c;
  one.lengths = {one.problem.max_seqlen_k};
  const DecodeImage image(one, 3);
  Memory memory = image.memory();
  attune_decode_args args = image.args(memory.data());
  const DecodePlan planned = plan(kernels.variant_for(one.problem), one.problem, emulator::device());
  std::vector<float> workspace(planned.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  args.workspace = workspace.data();
  args.workspace_bytes = planned.workspace_bytes;
  const std::string fault = run_emulated(kernels.find(planned, one.problem), args, one.problem, {.seed = 1}).fault;
  REQUIRE_MESSAGE(fault.empty(), fault);
  image.check(memory);
  for (const float partial_lse : std::span(workspace).last(5)) CHECK(std::isfinite(partial_lse));
}

TEST_CASE("a registry that emulates decodes in a workspace as large as it asks for, and refuses a smaller one") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const int splits : {0, 1, 3}) {
    CAPTURE(splits);
    const DecodeCase one{.problem = {.dtype = Dtype::fp16,
                                     .batch = 2,
                                     .seqlen_q = 3,
                                     .heads_q = 2,
                                     .heads_kv = 2,
                                     .head_dim = 40,
                                     .max_seqlen_k = 1400,
                                     .page_size = 1400,
                                     .pages = 2,
                                     .splits = splits,
                                     .window_right = 0},
                         .lengths = {1400, 131},
                         .has_table = false};
    const DecodeImage image(one, 9);
    Memory memory = image.memory();
    attune_decode_args args = image.args(memory.data());
    registry.prepare(args);
    args.workspace_bytes = registry.workspace_bytes(args);
    CHECK((args.workspace_bytes > 0) == (splits != 1));
    std::vector<float> workspace(args.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    args.workspace = workspace.data();
    registry.run(args, nullptr);
    image.check(memory);
    if (args.workspace_bytes == 0) continue;
    --args.workspace_bytes;
    CHECK_THROWS_AS(registry.run(args, nullptr), Error);
  }
}

}  // namespace attune::emulator_tests
