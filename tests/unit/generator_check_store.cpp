// The families store_kv and merge_states, and what is shipped of them.
#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "generator/cost.hpp"
#include "tests/harness/needs.hpp"

namespace {

using namespace attune;

constexpr int room = 227 * 1024;

TEST_CASE("kernels that store and merge are named by what they are made for") {
  Variant variant = families()[store_kv].defaults;
  CHECK(variant.name() == "store_kv_bf16_w4");
  variant.rotary = static_cast<int>(Rotary::interleaved);
  CHECK(variant.name() == "store_kv_bf16_w4_rotary_interleaved");
  variant.rotary = static_cast<int>(Rotary::halves);
  variant.dtype = static_cast<int>(Dtype::fp16);
  CHECK(variant.name() == "store_kv_fp16_w4_rotary_halves");
  CHECK(families()[merge_states].defaults.name() == "merge_states_bf16_w4");
}

TEST_CASE("the kernel that checks tables has no element type, and 16 bytes for each warp") {
  const Variant variant = families()[check_tables].defaults;
  CHECK(variant.name() == "check_tables_w4");
  CHECK(check(variant).empty());
  CHECK(resources(variant).threads == 128);
  CHECK(resources(variant).shared_bytes == 64);
}

TEST_CASE("kernels that store and merge need threads alone, and take any number of warps") {
  for (const int family : {store_kv, merge_states}) {
    for (int warps = 1; warps <= 16; ++warps) {
      Variant variant = families()[static_cast<std::size_t>(family)].defaults;
      variant.warps = warps;
      CHECK(check(variant).empty());
      CHECK(resources(variant).threads == 32 * warps);
      CHECK(resources(variant).shared_bytes == 0);
    }
    Variant variant = families()[static_cast<std::size_t>(family)].defaults;
    variant.warps = 17;
    REQUIRE(check(variant).size() == 1);
    CHECK(check(variant)[0].field == "warps");
  }
  Variant variant = families()[store_kv].defaults;
  variant.rotary = 3;
  REQUIRE(check(variant).size() == 1);
  CHECK(check(variant)[0].message == "rotary is 3; none, interleaved or halves");
}

TEST_CASE("the shipped kernels that store and merge are those that would be generated") {
  const std::filesystem::path root = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{root / "store_kv.yaml", root / "merge_states.yaml"});
  REQUIRE(collected.ok());
  CHECK(collected.value.refused.empty());
  CHECK(collected.value.wanted.size() == 2 * 3 + 2);
  for (const Wanted& one : collected.value.wanted) {
    Variant expected =
        default_variant(one.variant.family, need_for(static_cast<Dtype>(one.variant.dtype), 72, true), room);
    expected.rotary = one.variant.rotary;
    CHECK(one.variant == expected);
  }
}

TEST_CASE("kernels without products cost less than any with them") {
  const auto seconds = [](int family) {
    const std::vector<Variant> one{families()[static_cast<std::size_t>(family)].defaults};
    return estimate(one).seconds;
  };
  CHECK(seconds(store_kv) > 0);
  CHECK(seconds(store_kv) < seconds(decode_sm80));
  CHECK(seconds(merge_states) < seconds(decode_sm80));
}

}  // namespace
