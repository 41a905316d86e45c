// Feasibility: each rule says which it is, the two numbers and the nearest value that passes.
#include <doctest/doctest.h>

#include <limits>

#include "generator/check.hpp"
#include "generator/cost.hpp"
#include "tests/harness/needs.hpp"

namespace {

using namespace attune;

std::string refusals_of(const Variant& variant) {
  std::string all;
  for (const Refusal& refusal : check(variant)) all += refusal.field + ": " + refusal.message + "\n";
  return all;
}

ArchSet only(std::string_view name) {
  const Arch* arch = find_arch(name);
  return 1U << static_cast<unsigned>(arch - all_archs().data());
}

TEST_CASE("the default variant is feasible and its resources are as computed by hand") {
  const Variant variant;
  CHECK(refusals_of(variant).empty());
  const Resources needs = resources(variant);
  CHECK(needs.threads == 128);
  CHECK(needs.shared_bytes == 2 * (128 * 128 + 2 * 2 * 64 * 128));
  CHECK(needs.accumulator_registers == 128 + 64);
}

TEST_CASE("stages multiply K and V, and Q in registers adds half a register per element") {
  Variant variant;
  variant.stages = 2;
  CHECK(resources(variant).shared_bytes == 2 * (128 * 128 + 2 * 2 * 64 * 128));
  variant.head_dim = 64;
  variant.Q_in_registers = 1;
  CHECK(resources(variant).accumulator_registers == 64 + 64 + 32);
}

TEST_CASE("B_r is a multiple of 16 rows for every warp") {
  Variant variant;
  variant.B_r = 96;
  CHECK(refusals_of(variant) ==
        "B_r: B_r is 96, which is not a multiple of 16 * warps = 64: every warp computes whole 16-row tiles; "
        "nearest that passes: B_r 64\n");
  variant.B_r = 16;
  CHECK(refusals_of(variant).find("nearest that passes: B_r 64\n") != std::string::npos);
}

TEST_CASE("rows are cut by cp.async alone") {
  Variant variant;
  variant.cut_rows = 1;
  CHECK(refusals_of(variant).empty());
  variant.async_copy = variant.eager_load = 0;
  variant.stages = 1;
  CHECK(refusals_of(variant) ==
        "async_copy: cut_rows needs cp.async, which ends a copy where a row does; async_copy: true\n");
}

TEST_CASE("accumulators fit the registers of a thread") {
  Variant variant;
  variant.B_c = 128;
  CHECK(refusals_of(variant) ==
        "B_c: O and S take 256 registers per thread, over the 200 that 128 threads leave without spilling; "
        "nearest that passes: B_c 64\n");
  variant.B_c = 64;
  variant.head_dim = 256;
  CHECK(refusals_of(variant) ==
        "B_r: O and S take 320 registers per thread, over the 200 that 128 threads leave without spilling; "
        "nearest that passes: B_r 64\n");
  Variant held;
  held.Q_in_registers = 1;
  held.Q_fragment_tiles = 0;
  CHECK(refusals_of(held).find("O and S and Q take 256 registers per thread, over the 200 ") != std::string::npos);
}

TEST_CASE("a large block leaves each thread fewer registers") {
  Variant variant;
  variant.B_r = 256;
  variant.warps = 16;
  CHECK(refusals_of(variant) ==
        "B_c: O and S take 96 registers per thread, over the 73 that 512 threads leave without spilling; "
        "nearest that passes: B_c 16\n");
}

TEST_CASE("fragment tiles divide what they walk along") {
  Variant variant;
  variant.Q_fragment_tiles = 3;
  variant.K_fragment_tiles = 3;
  variant.V_fragment_tiles = 8;
  CHECK(refusals_of(variant) ==
        "Q_fragment_tiles: Q_fragment_tiles is 3, which does not divide the 8 tiles of head_dim / 16; "
        "nearest that passes: Q_fragment_tiles 2\n"
        "K_fragment_tiles: K_fragment_tiles is 3, which does not divide the 8 tiles of head_dim / 16; "
        "nearest that passes: K_fragment_tiles 2\n"
        "V_fragment_tiles: V_fragment_tiles is 8, which does not divide the 4 tiles of B_c / 16; "
        "nearest that passes: V_fragment_tiles 4\n");
}

TEST_CASE("Q and K advance together unless one is whole") {
  Variant variant;
  variant.Q_fragment_tiles = 2;
  variant.K_fragment_tiles = 4;
  CHECK(refusals_of(variant) ==
        "Q_fragment_tiles: Q_fragment_tiles is 2 and K_fragment_tiles 4, but both advance together along head_dim; "
        "Q_fragment_tiles: 4 or whole\n");
  variant.Q_fragment_tiles = 0;
  CHECK(refusals_of(variant).empty());
  variant.Q_fragment_tiles = 2;
  variant.K_fragment_tiles = 0;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("Q in registers is loaded whole") {
  Variant variant;
  variant.head_dim = 64;
  variant.Q_in_registers = 1;
  CHECK(refusals_of(variant) ==
        "Q_fragment_tiles: Q_in_registers loads all of Q's fragments once, so Q_fragment_tiles 1 means nothing; "
        "Q_fragment_tiles: whole\n");
  variant.Q_fragment_tiles = 0;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("double buffering needs something that is loaded in steps") {
  Variant variant;
  variant.Q_fragment_tiles = variant.K_fragment_tiles = variant.V_fragment_tiles = 0;
  CHECK(refusals_of(variant) ==
        "double_buffer: double_buffer loads the next tiles ahead, but the fragments of Q, K and V are all loaded "
        "whole; double_buffer: false\n");
  variant.double_buffer = 0;
  CHECK(refusals_of(variant).empty());
  // All tiles in one step are the whole operand, however they are spelled.
  variant.double_buffer = 1;
  variant.K_fragment_tiles = 8;
  CHECK(refusals_of(variant).starts_with("double_buffer: "));
  variant.K_fragment_tiles = 4;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("stages need eager loads, and eager loads need asynchronous copies") {
  Variant variant;
  variant.head_dim = 64;
  variant.stages = 2;
  variant.eager_load = 0;
  CHECK(refusals_of(variant) ==
        "stages: stages is 2, but without eager_load only 1 is ever filled ahead of its use; stages: 1, or "
        "eager_load: true\n");
  variant.stages = 1;
  CHECK(refusals_of(variant).empty());
  variant.async_copy = 0;
  CHECK(refusals_of(variant).empty());
  variant.eager_load = 1;
  CHECK(refusals_of(variant) ==
        "eager_load: eager_load asks for a block early, but without async_copy a thread waits for every copy; "
        "eager_load: false, or async_copy: true\n");
}

TEST_CASE("shared memory fits every GPU of the variant's set, or without a set the largest") {
  Variant variant;
  variant.stages = 3;
  CHECK(refusals_of(variant).empty());
  variant.arch = only("sm_80");
  CHECK(refusals_of(variant).empty());
  variant.arch = only("sm_80") | only("sm_86");
  CHECK(refusals_of(variant) ==
        "stages: Q, K and V take 131072 bytes of shared memory, over the 101376 a block may have on sm_86; "
        "nearest that passes: stages 2\n");
}

TEST_CASE("shared memory is refused with both numbers and a tile that fits") {
  Variant variant;
  variant.B_r = 64;
  variant.head_dim = 256;
  variant.B_c = 80;
  variant.stages = 1;
  variant.arch = only("sm_89");
  CHECK(refusals_of(variant) ==
        "B_c: Q, K and V take 114688 bytes of shared memory, over the 101376 a block may have on sm_89; "
        "nearest that passes: B_c 64\n");
  variant.arch = 0;
  variant.stages = 4;
  CHECK(refusals_of(variant) ==
        "stages: Q, K and V take 360448 bytes of shared memory, over the 232448 a block may have on any GPU; "
        "nearest that passes: stages 2\n");
}

TEST_CASE("an older GPU than the family's is refused") {
  const int needed = resources(Variant{}).shared_bytes;
  const std::vector<Refusal> refusals = check_limits(Variant{}, 75, needed);
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].field == "arch");
  CHECK(refusals[0].message == "this GPU has compute capability 7.5; prefill_sm80 needs 8.0 or newer");
  CHECK(check_limits(Variant{}, 80, needed - 1).size() == 1);
  CHECK(check_limits(Variant{}, 120, needed).empty());
}

TEST_CASE("a value outside the table is refused before anything is computed from it") {
  for (const std::string_view key : families()[prefill_sm80].keys) {
    const Field& field = *find_field(key);
    for (const int value : {-1, field.maximum + 1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      Variant variant;
      variant.*field.member = value;
      const std::vector<Refusal> refusals = check(variant);
      REQUIRE(refusals.size() == 1);
      CHECK(refusals[0].field == field.key);
    }
  }
  Variant variant;
  variant.B_r = 100;
  CHECK(refusals_of(variant) == "B_r: B_r is 100; a multiple of 16 from 16 to 256, nearest 96\n");
  variant.family = static_cast<int>(families().size());
  CHECK(check(variant).at(0).field == "template");
}

TEST_CASE("a variant without a set is for every GPU that it fits") {
  CHECK(target_archs(Variant{}).size() == all_archs().size());
  Variant variant;
  variant.stages = 3;
  for (const Arch& arch : target_archs(variant)) CHECK(arch.shared_per_block >= resources(variant).shared_bytes);
  CHECK(target_archs(variant).size() == 6);
  variant.arch = only("sm_90");
  REQUIRE(target_archs(variant).size() == 1);
  CHECK(target_archs(variant)[0].name == "sm_90");
}

TEST_CASE("every head_dim has a feasible default on every GPU") {
  for (const Arch& arch : all_archs()) {
    for (int head_dim = 1; head_dim <= 256; ++head_dim) {
      for (const bool causal : {false, true}) {
        const Variant variant =
            default_variant(prefill_sm80, need_for(Dtype::fp16, head_dim, causal), arch.shared_per_block);
        CAPTURE(variant.name());
        CHECK(check(variant).empty());
        CHECK(check_arch(variant, arch).empty());
        CHECK(variant.head_dim >= head_dim);
        CHECK(variant.head_dim < head_dim + 16);
        CHECK(variant.causal == (causal ? 1 : 0));
      }
    }
  }
}

TEST_CASE("a default shrinks to the shared memory it is given") {
  for (const int bytes : {48 * 1024, 64 * 1024, 227 * 1024}) {
    const Variant variant = default_variant(prefill_sm80, need_for(Dtype::bf16, 256), bytes);
    CAPTURE(bytes);
    CHECK(resources(variant).shared_bytes <= bytes);
    CHECK(check(variant).empty());
  }
  CHECK_FALSE(check_limits(default_variant(prefill_sm80, need_for(Dtype::bf16, 256), 1024), 80, 1024).empty());
}

TEST_CASE("the cost of a spec grows with its kernels") {
  CHECK(mma_instructions(Variant{}) == 2 * 8 * 8 * 2);
  const std::vector<Variant> two{Variant{}, Variant{}};
  const Cost one = estimate(std::span(two).first(1));
  const Cost both = estimate(two);
  CHECK(one.seconds > 0.1);
  CHECK(both.seconds == doctest::Approx(2 * one.seconds));
  CHECK(both.bytes == 2 * one.bytes);
  CHECK(estimate(two, 3).bytes == 3 * both.bytes);
  CHECK(estimate({}).bytes == 0);
}

}  // namespace
