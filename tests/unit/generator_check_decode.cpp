// The rules of decode_sm80 and combine, and what is shipped of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "generator/cost.hpp"
#include "tests/harness/needs.hpp"

namespace {

using namespace attune;

constexpr int room = 227 * 1024;
const Variant defaults = families()[decode_sm80].defaults;

std::string refusals_of(const Variant& variant) {
  std::string text;
  for (const Refusal& refusal : check(variant)) text += refusal.field + ": " + refusal.message + "\n";
  return text;
}

TEST_CASE("a decode kernel needs its pipeline, m, l and O of eight rows for each warp") {
  const Resources needs = resources(defaults);
  CHECK(needs.threads == 128);
  CHECK(needs.shared_bytes == 2 * 2 * 64 * 128 * 2 + 4 * 8 * (128 + 2) * 4);
  CHECK(needs.accumulator_registers == 64 + 8 + 32);
  CHECK(defaults.name() == "decode_sm80_bf16_d128_r16_c64_w4_s2");
  Variant paged = defaults;
  paged.paged = 1;
  CHECK(paged.name() == "decode_sm80_bf16_d128_r16_c64_w4_s2_paged");
  paged.page_multiple = 16;
  CHECK(paged.name() == "decode_sm80_bf16_d128_r16_c64_w4_s2_paged_page16");
  CHECK(families()[combine].defaults.name() == "combine_bf16_d128_w8");
  CHECK(resources(families()[combine].defaults).threads == 256);
}

TEST_CASE("tiles that do not divide are refused with the nearest that do") {
  Variant variant = defaults;
  variant.B_c = 96;
  CHECK(refusals_of(variant) == "B_c: B_c is 96, but 4 warps take 16 or 32 keys each; nearest that passes: B_c 64\n");
  variant = defaults;
  variant.B_r = 48;
  CHECK(refusals_of(variant) == "B_r: B_r is 48; decode_sm80 has 16, 32; nearest that passes: B_r 32\n");
  variant = families()[combine].defaults;
  variant.head_dim = 256;
  variant.warps = 1;
  CHECK(refusals_of(variant) ==
        "warps: warps is 1; head_dim 256 needs a thread for each 4 columns of O; nearest that passes: "
        "warps 2\n");
  variant.warps = 3;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("a kernel for its own head_dim, a multiple of 16, cuts no rows") {
  Variant variant = defaults;
  variant.gqa_ratio = variant.one_query = variant.cut_rows = 1;
  CHECK(refusals_of(variant) ==
        "one_query: one_query serves the kernel's own head_dim, which cuts no rows; one_query: false\n");
  variant.one_query = 0;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("pages are of any size or a multiple of 16 tokens, and only of kernels for pages") {
  Variant variant = defaults;
  variant.page_multiple = 16;
  CHECK(refusals_of(variant) ==
        "page_multiple: page_multiple is 16, but the kernel is not for pages; nearest that passes: page_multiple 1\n");
  variant.paged = 1;
  CHECK(refusals_of(variant).empty());
  variant.page_multiple = 12;
  CHECK(refusals_of(variant) ==
        "page_multiple: page_multiple is 12; decode_sm80 has 1, 16; nearest that passes: page_multiple 16\n");
}

TEST_CASE("what the blocks of a cluster leave for each other must fit where their keys were") {
  Variant variant = defaults;
  variant.cluster = 1;
  CHECK(refusals_of(variant).empty());
  variant.B_r = variant.B_c = 32;
  variant.warps = 2;
  variant.stages = 1;
  CHECK(refusals_of(variant) ==
        "B_c: in a cluster 32 rows of O take the place of 32 keys, which have fewer bytes; nearest that passes: B_c "
        "64\n");
  variant.stages = 2;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("clusters are compiled for compute capability 9.0 and newer alone") {
  Variant variant = defaults;
  CHECK(minimum_capability(variant) == 80);
  variant.cluster = 1;
  CHECK(minimum_capability(variant) == 90);
  CHECK_FALSE(runs_on(variant, 89));
  CHECK(runs_on(variant, 90));
  CHECK(std::ranges::min(target_archs(variant), {}, &Arch::capability).capability == 90);
  variant.arch = set_of(*find_arch("sm_80"));
  CHECK(refusals_of(variant) ==
        "arch: sm_80 has compute capability 8.0; decode_sm80 with clusters needs 9.0 or newer\n");
}

TEST_CASE("O, S and Q must fit the registers") {
  Variant variant = defaults;
  variant.B_r = 32;
  CHECK(refusals_of(variant).empty());
  variant.head_dim = 176;
  variant.B_c = 64;
  variant.stages = 1;
  CHECK(refusals_of(variant).empty());
  variant.head_dim = 192;
  CHECK(refusals_of(variant).starts_with("B_r: O, S and Q take 208 registers per thread"));
}

TEST_CASE("warps with rows of their own have 16 or 32 each, and share up to 64 keys, of which each copies 16 or 32") {
  Variant variant = defaults;
  variant.split_rows = 1;
  variant.warps = 5;
  variant.B_r = 80;
  variant.B_c = 64;
  CHECK(refusals_of(variant).empty());
  variant.B_r = 64;
  CHECK(refusals_of(variant).starts_with("B_r: B_r is 64, but each of 5 warps, up to 8, has 16 or 32 rows of its own"));
  variant.B_r = 80;
  variant.B_c = 128;
  CHECK(refusals_of(variant).starts_with("B_c: B_c is 128, but 5 warps share up to 64 keys"));
  variant.warps = 9;
  variant.B_r = 144;
  variant.B_c = 64;
  CHECK(!refusals_of(variant).empty());
}

TEST_CASE("every head_dim has feasible defaults, for few rows and for many") {
  for (const int shared_per_block : {99 * 1024, room}) {
    for (int head_dim = 1; head_dim <= 256; ++head_dim) {
      for (const int B_r : {16, 32, 64, 80, 128}) {
        const Variant variant = default_variant(decode_sm80, need_for(Dtype::fp16, head_dim), shared_per_block, B_r);
        CAPTURE(variant.name());
        CHECK(refusals_of(variant).empty());
        CHECK(resources(variant).shared_bytes <= shared_per_block);
        CHECK(variant.head_dim >= head_dim);
        CHECK(variant.head_dim < head_dim + 16);
        const bool splits_rows = B_r > (head_dim <= 176 ? 64 : 16);
        CHECK(variant.split_rows == (splits_rows ? 1 : 0));
        CHECK(variant.B_r == (splits_rows ? B_r : std::min(B_r, 32)));
        if (splits_rows) CHECK(variant.B_r / variant.warps == (B_r == 128 && head_dim <= 128 ? 32 : 16));
      }
      CHECK(refusals_of(default_variant(combine, need_for(Dtype::bf16, head_dim), room)).empty());
    }
  }
}

TEST_CASE("what is shipped is what would be generated for the same head_dim") {
  const std::filesystem::path root = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{root / "decode.yaml", root / "combine.yaml"});
  REQUIRE(collected.ok());
  CHECK(collected.value.refused.empty());
  CHECK(collected.value.wanted.size() == 2 * 3 * 6 + 2 * 3);
  constexpr int smaller_room = 99 * 1024;
  for (const Wanted& one : collected.value.wanted) {
    const bool fits_all = resources(one.variant).shared_bytes <= smaller_room;
    Variant expected =
        default_variant(one.variant.family, need_for(static_cast<Dtype>(one.variant.dtype), one.variant.head_dim),
                        fits_all ? smaller_room : room, one.variant.B_r);
    expected.paged = one.variant.paged;
    expected.page_multiple = one.variant.page_multiple;
    CHECK(one.variant == expected);
  }
}

TEST_CASE("the cost of a decode kernel grows with its tile, and combine's is the least") {
  const auto seconds = [](int family, int head_dim, int B_r = 16) {
    const std::vector<Variant> one{default_variant(family, need_for(Dtype::bf16, head_dim), room, B_r)};
    return estimate(one).seconds;
  };
  CHECK(seconds(decode_sm80, 128, 32) > seconds(decode_sm80, 128));
  CHECK(seconds(decode_sm80, 256) > seconds(combine, 256));
  CHECK(seconds(combine, 256) > 0);
}

}  // namespace
