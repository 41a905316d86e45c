// Feasibility of prefill_sm90: what its tiles take, its rules, and its default tiles, which are the shipped ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "generator/cost.hpp"
#include "tests/harness/needs.hpp"

namespace {

using namespace attune;

const Variant defaults = families()[prefill_sm90].defaults;
constexpr int room = 227 * 1024;

Variant tile(int head_dim, int B_r, int B_c, int stages = 1) {
  Variant variant = defaults;
  variant.head_dim = head_dim;
  variant.B_r = B_r;
  variant.B_c = B_c;
  variant.stages = stages;
  variant.ping_pong = B_r > 64 ? 1 : 0;
  return variant;
}

std::string refusals_of(const Variant& variant) {
  std::string all;
  for (const Refusal& refusal : check(variant)) all += refusal.field + ": " + refusal.message + "\n";
  return all;
}

ArchSet only(std::string_view name) { return 1U << static_cast<unsigned>(find_arch(name) - all_archs().data()); }

TEST_CASE("the default variant is feasible and its resources are as computed by hand") {
  CHECK(refusals_of(defaults).empty());
  const Resources needs = resources(defaults);
  CHECK(needs.threads == 384);
  // A tile of Q, two blocks of K and of V, two panels of 128 bytes a row each; a full and an empty mbarrier for each.
  CHECK(needs.shared_bytes == 128 * 256 + 4 * 128 * 256 + 2 * 2 * 8192 + 5 * 16 + 1023);
  CHECK(needs.accumulator_registers == 64 + 64 + 32);
}

TEST_CASE("columns are counted in whole panels of 64, and every 64 rows are a warpgroup of their own") {
  CHECK(resources(tile(96, 128, 128)).shared_bytes == resources(tile(128, 128, 128)).shared_bytes);
  CHECK(resources(tile(64, 64, 128)).threads == 256);
  CHECK(resources(tile(64, 192, 128)).threads == 512);
  CHECK(resources(tile(64, 192, 128)).shared_bytes == (192 + 2 * 128) * 128 + 3 * 8192 + 3 * 16 + 1023);
}

TEST_CASE("tiles are listed of a causal mask alone") {
  Variant variant = tile(128, 128, 64);
  variant.tile_list = 1;
  CHECK(refusals_of(variant) == "tile_list: without the causal mask all tiles take the same time; tile_list: false\n");
  variant.causal = 1;
  CHECK(refusals_of(variant).empty());
  variant.ragged = 1;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("last tiles are shared without a mask, whatever else a kernel does") {
  Variant variant = tile(256, 128, 64);
  variant.Q_columns_in_registers = 80;
  variant.stream_k = 1;
  CHECK(refusals_of(variant).empty());
  const auto refused = [&](int Variant::*key, std::string_view message) {
    Variant other = variant;
    other.*key = 1;
    other.gqa_ratio = other.pack_gqa != 0 ? 4 : 0;
    return refusals_of(other).starts_with(message);
  };
  CHECK(refused(&Variant::causal, "stream_k: the keys of a tile are shared out by their number"));
  CHECK(refused(&Variant::window, "stream_k: the keys of a tile are shared out by their number"));
  CHECK(refused(&Variant::ragged, "stream_k: the keys of a tile are shared out by their number"));
  variant.softcap = 1;
  variant.P_residual_keys = 32;
  CHECK_FALSE(refused(&Variant::pack_gqa, "stream_k"));
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("Q in registers takes half a register an element beside O, S and P") {
  Variant variant = tile(128, 128, 128, 2);
  variant.Q_columns_in_registers = 128;
  CHECK(refusals_of(variant).empty());
  CHECK(resources(variant).accumulator_registers == 64 + 64 + 32 + 32);
  CHECK(variant.name() == "prefill_sm90_bf16_d128_r128_c128_s2_qreg128");
  variant.B_c = 144;
  CHECK(refusals_of(variant).starts_with("B_c: O, S, P and Q take 204 registers per thread, over the 196"));
}

TEST_CASE("a part of Q in registers takes half a register a column") {
  Variant variant = tile(256, 128, 64, 1);
  variant.Q_columns_in_registers = 80;
  CHECK(refusals_of(variant).empty());
  CHECK(resources(variant).accumulator_registers == 128 + 32 + 16 + 20);
  variant.Q_columns_in_registers = 96;
  CHECK(refusals_of(variant).starts_with("B_c: O, S, P and Q take 200 registers per thread, over the 196"));
  variant.Q_columns_in_registers = 256;
  CHECK(refusals_of(variant) ==
        "Q_columns_in_registers: O, S, P and Q take 240 registers per thread, over the 196 that 2 warpgroups leave "
        "without spilling; nearest that passes: Q_columns_in_registers 80\n");
  variant = tile(128, 128, 64, 2);
  variant.Q_columns_in_registers = 112;
  CHECK(refusals_of(variant).empty());
  variant.Q_columns_in_registers = 144;
  CHECK(refusals_of(variant) ==
        "Q_columns_in_registers: a row of Q has head_dim 128 columns, fewer than 144; nearest that passes: "
        "Q_columns_in_registers 128\n");
}

TEST_CASE("head_dim is one of those that the family has") {
  CHECK(refusals_of(tile(160, 128, 64)) ==
        "head_dim: head_dim is 160; prefill_sm90 has 64, 96, 128, 192, 256; nearest that passes: head_dim 128\n");
  for (const int head_dim : {64, 96, 128, 192, 256}) CHECK(refusals_of(tile(head_dim, 128, 64)).empty());
}

TEST_CASE("V with fewer columns than K takes less of shared memory and of registers, and so does O") {
  Variant variant = tile(192, 128, 112, 2);
  CHECK(refusals_of(variant).starts_with("stages: Q, K and V take 238671 bytes of shared memory"));
  variant.head_dim_v = 128;
  CHECK(refusals_of(variant).empty());
  CHECK(variant.name() == "prefill_sm90_bf16_d192_v128_r128_c112_s2");
  const Resources needs = resources(variant);
  // Q and two blocks of K in rows of 3 panels, two blocks of V in rows of 2; O, whose rows are two panels at once.
  CHECK(needs.shared_bytes == 128 * 384 + 2 * 112 * (384 + 256) + 2 * 2 * 8192 + 5 * 16 + 1023);
  CHECK(needs.accumulator_registers == 64 + 56 + 28);
}

TEST_CASE("head_dim_v is one that the family has, and less than head_dim") {
  const auto refusals_with = [](int head_dim, int head_dim_v) {
    Variant variant = tile(head_dim, 128, 64);
    variant.head_dim_v = head_dim_v;
    return refusals_of(variant);
  };
  for (const int head_dim_v : {0, 64, 96, 128, 192}) CHECK(refusals_with(256, head_dim_v).empty());
  CHECK(refusals_with(192, 192) ==
        "head_dim_v: head_dim_v is 192; prefill_sm90 has 64, 96, 128, 192, 256 where that is less than head_dim, which "
        "is 192; nearest that passes: head_dim_v 128\n");
  CHECK(refusals_with(128, 192).starts_with("head_dim_v: head_dim_v is 192; "));
  CHECK(refusals_with(192, 160).starts_with("head_dim_v: head_dim_v is 160; "));
  CHECK(refusals_with(64, 64).ends_with("no value of head_dim_v alone passes\n"));
}

TEST_CASE("the default for V's own head_dim is the smallest pair that holds both") {
  const auto pair_for = [](int head_dim, int head_dim_v) {
    const Variant variant =
        default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim, false, head_dim_v), room, 128);
    CHECK(refusals_of(variant).empty());
    return std::pair(variant.head_dim, variant.head_dim_of_v());
  };
  CHECK(pair_for(192, 128) == std::pair(192, 128));
  CHECK(pair_for(136, 8) == std::pair(192, 128));
  CHECK(pair_for(192, 136) == std::pair(192, 192));
  CHECK(pair_for(128, 64) == std::pair(128, 128));
  CHECK(pair_for(64, 128) == std::pair(128, 128));
  CHECK(pair_for(200, 128) == std::pair(256, 256));
}

TEST_CASE("B_r is one to three warpgroups") {
  CHECK(refusals_of(tile(64, 96, 128)) ==
        "B_r: B_r is 96, but 1 to 3 warpgroups compute 64 rows each; nearest that passes: B_r 64\n");
  CHECK(refusals_of(tile(64, 256, 192)).starts_with("B_r: B_r is 256, but 1 to 3 warpgroups"));
  CHECK(refusals_of(tile(64, 192, 128)).empty());
}

TEST_CASE("O, S and P fit the registers that warpgroups hand each other") {
  CHECK(refusals_of(tile(128, 128, 176)).empty());
  CHECK(refusals_of(tile(128, 128, 192)) ==
        "B_c: O, S and P take 208 registers per thread, over the 196 that 2 warpgroups leave without spilling; nearest "
        "that passes: B_c 176\n");
  CHECK(refusals_of(tile(64, 192, 144)) ==
        "B_c: O, S and P take 140 registers per thread, over the 128 that 3 warpgroups leave without spilling; nearest "
        "that passes: B_c 128\n");
  CHECK(refusals_of(tile(128, 192, 128)).starts_with("B_c: O, S and P take 160 registers per thread, over the 128 "));
}

TEST_CASE("warpgroups take turns where there are two") {
  Variant variant = tile(128, 64, 128);
  CHECK(refusals_of(variant).empty());
  variant.ping_pong = 1;
  CHECK(refusals_of(variant) ==
        "ping_pong: ping_pong has warpgroups take turns, but B_r 64 is one warpgroup's; ping_pong: false, or B_r: "
        "128\n");
}

TEST_CASE("residuals are those of a block's keys") {
  Variant variant = tile(128, 128, 64);
  for (const int keys : {16, 32, 64}) {
    variant.P_residual_keys = keys;
    CHECK(refusals_of(variant).empty());
  }
  variant.P_residual_keys = 80;
  CHECK(refusals_of(variant) ==
        "P_residual_keys: a block has B_c 64 keys, fewer than P_residual_keys 80; nearest that passes: P_residual_keys "
        "64\n");
}

TEST_CASE("residuals are the default where blocks of keys are larger than FlashAttention-2's, half as many if causal") {
  for (const auto& [head_dim, keys] : {std::pair{64, 0}, {96, 32}, {128, 32}, {192, 32}, {256, 0}}) {
    for (const int B_r : {128, 192}) {
      CHECK(default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim), room, B_r).P_residual_keys == keys);
      CHECK(default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim, true), room, B_r).P_residual_keys ==
            keys / 2);
    }
  }
  CHECK(default_variant(prefill_sm90, need_for(Dtype::bf16, 192), room).Q_columns_in_registers == 96);
  const Variant window = default_variant(prefill_sm90, asking(need_for(Dtype::bf16, 192), {&Need::window}), room, 128);
  CHECK(window.Q_columns_in_registers == 96);
  CHECK(window.stream_k == 0);
}

TEST_CASE("heads are packed where a power of two of them divides a warpgroup's rows") {
  Variant variant = tile(128, 192, 64);
  variant.pack_gqa = 1;
  CHECK(refusals_of(variant) ==
        "gqa_ratio: gqa_ratio is any, but pack_gqa packs a power of two from 2 to 64 of heads into the 64 rows of a "
        "warpgroup; nearest that passes: gqa_ratio 2\n");
  for (const int ratio : {2, 4, 8, 16, 32, 64}) {
    variant.gqa_ratio = ratio;
    CHECK(refusals_of(variant).empty());
  }
  for (const auto& [ratio, nearest] : {std::pair{1, 2}, {6, 4}, {7, 8}, {128, 64}}) {
    variant.gqa_ratio = ratio;
    CHECK(refusals_of(variant).find("nearest that passes: gqa_ratio " + std::to_string(nearest)) != std::string::npos);
  }
  variant.pack_gqa = 0;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("a ragged kernel has slots for which tiles come, and packs no heads, nor does one with a window") {
  Variant variant = defaults;
  variant.ragged = 1;
  CHECK(refusals_of(variant).empty());
  CHECK(resources(variant).shared_bytes == resources(defaults).shared_bytes + 5 * 48 + 4 * 16);
  variant.gqa_ratio = 4;
  variant.pack_gqa = 1;
  CHECK(refusals_of(variant).starts_with("pack_gqa: pack_gqa has the rows of several heads in one box of Q"));
  variant.ragged = 0;
  variant.window = 1;
  CHECK(refusals_of(variant).starts_with("pack_gqa: pack_gqa has no windows among its masks"));
}

TEST_CASE("a kernel for pages has slots for which tiles come, and no tiles that are listed") {
  Variant paged = tile(128, 128, 128, 2);
  const int without = resources(paged).shared_bytes;
  paged.paged = 1;
  paged.page_multiple = 16;
  CHECK(refusals_of(paged).empty());
  CHECK(resources(paged).shared_bytes == without + 2 * 48 + 16);
  paged.ragged = 1;
  CHECK(resources(paged).shared_bytes == without + 5 * 48 + 4 * 16);
  paged.ragged = 0;
  paged.page_multiple = 8;
  CHECK(refusals_of(paged) ==
        "page_multiple: page_multiple is 8; prefill_sm90 has 1, 16; nearest that passes: page_multiple 1\n");
  paged.page_multiple = 16;
  paged.stream_k = 1;
  CHECK(refusals_of(paged).empty());
  paged.ragged = 1;
  CHECK(refusals_of(paged).starts_with("stream_k: the keys of a tile are shared out by their number"));
  paged.ragged = paged.stream_k = 0;
  paged.causal = paged.tile_list = 1;
  CHECK(refusals_of(paged).starts_with("tile_list: a list is balanced for sequences of one length, which in pages"));
  Variant unpaged = defaults;
  unpaged.page_multiple = 16;
  CHECK(refusals_of(unpaged) ==
        "page_multiple: page_multiple is 16, but the kernel is not for pages; nearest that passes: page_multiple 1\n");
}

TEST_CASE("kernels for pages of any size have the tiles of contiguous keys, three warpgroups among them") {
  for (const int page_multiple : {1, 16}) {
    for (const int head_dim : {64, 96, 128, 192, 256}) {
      for (const bool causal : {false, true}) {
        Need need = asking(need_for(Dtype::bf16, head_dim, causal), {&Need::paged});
        need.page_multiple = page_multiple;
        const Variant variant = default_variant(prefill_sm90, need, room, 192);
        CHECK(refusals_of(variant).empty());
        CHECK(variant.page_multiple == page_multiple);
        CHECK(variant.B_r == default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim, causal), room, 192).B_r);
      }
    }
  }
}

TEST_CASE("dropout leaves no place for packed heads, lists of tiles and shared tiles") {
  Variant variant = defaults;
  variant.dropout = 1;
  CHECK(refusals_of(variant).empty());
  variant.stream_k = 1;
  CHECK(refusals_of(variant).starts_with("stream_k: parameters with dropout have nothing about shared tiles"));
  variant.stream_k = 0;
  variant.causal = variant.tile_list = 1;
  CHECK(refusals_of(variant).starts_with("tile_list: a tile_list leaves no room among the parameters"));
  variant.tile_list = 0;
  variant.gqa_ratio = 4;
  variant.pack_gqa = 1;
  CHECK(refusals_of(variant).starts_with("pack_gqa: dropout has the random bits of rows 8 apart in one word"));
}

TEST_CASE("sinks go with packed heads and lists of tiles, and leave no place for shared tiles") {
  Variant variant = defaults;
  variant.sink = 1;
  CHECK(refusals_of(variant).empty());
  variant.stream_k = 1;
  CHECK(refusals_of(variant).starts_with("stream_k: parameters with sinks have nothing about shared tiles"));
  variant.stream_k = 0;
  variant.causal = variant.tile_list = 1;
  CHECK(refusals_of(variant).empty());
  variant.tile_list = 0;
  variant.gqa_ratio = 4;
  variant.pack_gqa = 1;
  CHECK(refusals_of(variant).empty());
}

TEST_CASE("shared memory is refused with both numbers and what to give up") {
  CHECK(refusals_of(tile(128, 128, 128, 4)) ==
        "stages: Q, K and V take 328847 bytes of shared memory, over the 232448 a block may have on sm_90; nearest "
        "that passes: stages 2\n");
}

TEST_CASE("it runs on compute capability 9.0 alone, whatever the set asks for") {
  CHECK(target_archs(defaults).size() == 1);
  CHECK(target_archs(defaults)[0].name == "sm_90");
  CHECK(check_arch(defaults, *find_arch("sm_90")).empty());
  const auto refusals = check_limits(defaults, 100, room);
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].message == "this GPU has compute capability 10.0; prefill_sm90 runs on 9.0 alone");
  Variant variant = defaults;
  variant.arch = only("sm_90") | only("sm_100");
  CHECK(refusals_of(variant) == "arch: sm_100 has compute capability 10.0; prefill_sm90 runs on 9.0 alone\n");
}

TEST_CASE("every head_dim has a feasible default, the smallest of the family's that holds it") {
  for (int head_dim = 1; head_dim <= 256; ++head_dim) {
    for (const bool causal : {false, true}) {
      const Variant variant = default_variant(prefill_sm90, need_for(Dtype::fp16, head_dim, causal), room);
      CAPTURE(variant.name());
      CHECK(refusals_of(variant).empty());
      CHECK(variant.head_dim >= head_dim);
      CHECK(variant.head_dim <= std::max(64, head_dim + 63));
      CHECK(variant.causal == (causal ? 1 : 0));
    }
  }
}

TEST_CASE("the default tile is the one of its head_dim and mask whose B_r is nearest to what is asked for") {
  const auto tile_for = [](int head_dim, bool causal, int B_r, bool window = false) {
    const Variant variant = default_variant(prefill_sm90,
                                            window ? asking(need_for(Dtype::bf16, head_dim, causal), {&Need::window})
                                                   : need_for(Dtype::bf16, head_dim, causal),
                                            room, B_r);
    return std::pair(variant.B_r, variant.B_c);
  };
  for (const bool causal : {false, true}) {
    for (const int B_r : {64, 128, 192}) CHECK(tile_for(128, causal, B_r) == std::pair(128, 128));
    CHECK(tile_for(96, causal, 192) == std::pair(192, 96));
    for (const int B_r : {64, 128}) CHECK(tile_for(96, causal, B_r) == std::pair(128, 128));
    CHECK(tile_for(64, causal, 192) == std::pair(192, 128));
    for (const int B_r : {64, 128}) CHECK(tile_for(64, causal, B_r) == std::pair(128, 128));
  }
  for (const int B_r : {64, 128}) {
    CHECK(tile_for(64, true, B_r, true) == std::pair(192, 128));  // a window's blocks share no tiles
  }
  CHECK(default_variant(prefill_sm90, asking(need_for(Dtype::bf16, 64), {&Need::ragged}), room, 128).B_r == 192);
}

TEST_CASE("what is shipped for 9.0 is what would be generated there") {
  const std::filesystem::path spec = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs/prefill_sm90.yaml";
  const Result<Collection> collected = collect(std::span(&spec, 1));
  REQUIRE(collected.ok());
  CHECK(collected.value.refused.empty());
  std::vector<Variant> shipped;
  for (const Wanted& one : collected.value.wanted) shipped.push_back(one.variant);
  std::vector<Variant> expected;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const bool causal : {false, true}) {
      for (const int head_dim : {64, 96, 128, 192, 256}) {
        for (const int B_r : {128, 192}) {
          expected.push_back(default_variant(prefill_sm90, need_for(dtype, head_dim, causal), room, B_r));
        }
      }
      expected.push_back(default_variant(prefill_sm90, need_for(dtype, 192, causal, 128), room, 128));
    }
  }
  std::ranges::sort(shipped);
  std::ranges::sort(expected);
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  CHECK(shipped == expected);
}

TEST_CASE("the cost of a kernel grows with its tile") {
  const auto seconds = [](int head_dim) {
    const std::vector<Variant> one{default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim), room)};
    return estimate(one).seconds;
  };
  CHECK(seconds(64) > 0.1);
  CHECK(seconds(256) > seconds(128));
  CHECK(seconds(256) < 3);
}

}  // namespace
