// The field table: names, words and values.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace {

using namespace attune;

TEST_CASE("a name has the fields every kernel has, then what differs from its default") {
  Variant variant;
  CHECK(variant.name() == "prefill_sm80_bf16_d128_r128_c64_w4_s2");
  variant.causal = 1;
  variant.dtype = static_cast<int>(Dtype::fp16);
  CHECK(variant.name() == "prefill_sm80_fp16_d128_r128_c64_w4_s2_causal");
  variant.causal = 0;
  variant.gqa_ratio = 4;
  variant.async_copy = 0;
  variant.eager_load = 0;
  variant.swizzle = 0;
  variant.Q_in_registers = 1;
  variant.Q_fragment_tiles = 0;
  variant.V_fragment_tiles = 2;
  variant.double_buffer = 0;
  variant.rescale = static_cast<int>(Rescale::always);
  CHECK(variant.name() ==
        "prefill_sm80_fp16_d128_r128_c64_w4_s2_gqa4_sync_lazy_noswizzle_qreg_qwhole_v2_singlebuffer_rescale_always");
}

TEST_CASE("a name does not depend on the GPUs a variant is for") {
  Variant variant;
  variant.arch = 3;
  CHECK(variant.name() == Variant{}.name());
}

TEST_CASE("a name leaves out what is the family's own default") {
  Variant variant = families()[prefill_sm90].defaults;
  CHECK(variant.name() == "prefill_sm90_bf16_d128_r128_c128_s2");
  variant.causal = 1;
  CHECK(variant.name() == "prefill_sm90_bf16_d128_r128_c128_s2_causal");
  variant.gqa_ratio = 4;
  variant.pack_gqa = 1;
  variant.ping_pong = 0;
  variant.rescale_bound = 8;
  CHECK(variant.name() == "prefill_sm90_bf16_d128_r128_c128_s2_causal_gqa4_packgqa_nopingpong_bound8");
  variant.warps = 8;  // no field of this family
  CHECK(variant.name() == "prefill_sm90_bf16_d128_r128_c128_s2_causal_gqa4_packgqa_nopingpong_bound8");
}

/// Two values of every field of a family: all combinations where these are few, else those in which up to four fields
/// have the second value, and as many random ones.
std::vector<Variant> combinations(const Family& family) {
  std::vector<std::pair<int Variant::*, std::array<int, 2>>> fields;
  for (const std::string_view key : family.keys) {
    const Field& field = *find_field(key);
    if (field.kind == FieldKind::expression) continue;  // generator_spec_expressions.cpp has these
    std::vector<int> values;
    for (int value = 0; value <= field.maximum && values.size() < 2; ++value) {
      if (is_legal(field, value)) values.push_back(value);
    }
    if (values.size() == 1) values.push_back(2 * field.step);
    fields.emplace_back(field.member, std::array{values[0], values[1]});
  }
  const std::uint32_t all = 1U << fields.size();
  std::set<std::uint32_t> chosen;
  constexpr std::uint32_t few = 1U << 14;
  for (std::uint32_t second = 0; second < all; ++second) {
    if (all <= few || std::popcount(second) <= 4) chosen.insert(second);
  }
  std::mt19937 random(1);
  for (std::uint32_t i = 0; i < few && all > few; ++i) chosen.insert(random() % all);
  std::vector<Variant> variants;
  for (const std::uint32_t second : chosen) {
    Variant variant = family.defaults;
    for (std::size_t i = 0; i < fields.size(); ++i) variant.*fields[i].first = fields[i].second[second >> i & 1U];
    variants.push_back(variant);
  }
  return variants;
}

TEST_CASE("distinct variants have distinct names that are C identifiers") {
  std::vector<Variant> variants;
  for (const Family& family : families()) {
    const std::vector<Variant> own = combinations(family);
    variants.insert(variants.end(), own.begin(), own.end());
  }
  std::set<std::string> names;
  for (const Variant& variant : variants) names.insert(variant.name());
  CHECK(names.size() == variants.size());
  bool identifiers = true;
  for (const std::string& name : names) {
    identifiers = identifiers && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
  }
  CHECK(identifiers);
}

TEST_CASE("every legal value of one field alone has its own name") {
  std::set<std::string> names;
  std::size_t values = 0;
  for (const Family& family : families()) {
    for (const std::string_view key : family.keys) {
      const Field& field = *find_field(key);
      for (int value = 0; value <= field.maximum; ++value) {
        if (!is_legal(field, value) || value == family.defaults.*field.member) continue;
        Variant variant = family.defaults;
        variant.*field.member = value;
        names.insert(variant.name());
        ++values;
      }
    }
  }
  CHECK(names.size() == values);
}

TEST_CASE("every legal value reads back from its text") {
  for (const Field& field : fields()) {
    CAPTURE(field.key);
    int legal = 0;
    for (int value = -1; value <= field.maximum + field.step; ++value) {
      if (!is_legal(field, value)) continue;
      ++legal;
      CHECK(parse_value(field, value_text(field, value)) == value);
    }
    CHECK((legal > 1 || field.kind == FieldKind::expression));
    CHECK(is_legal(field, Variant{}.*field.member));
  }
}

TEST_CASE("words are read exactly") {
  const Field& causal = *find_field("causal");
  for (const char* word : {"True", "TRUE", "yes", "on", "1", "0", ""}) CHECK_FALSE(parse_value(causal, word));
  const Field& dtype = *find_field("dtype");
  for (const char* word : {"BF16", "0", "1", ""}) CHECK_FALSE(parse_value(dtype, word));
  CHECK(parse_value(dtype, "fp16") == 0);
  CHECK(parse_value(*find_field("K_fragment_tiles"), "whole") == 0);
  CHECK_FALSE(parse_value(*find_field("K_fragment_tiles"), "0"));
  CHECK_FALSE(parse_value(*find_field("stages"), "0"));
  CHECK(parse_value(*find_field("rescale_bound"), "0") == 0);
}

TEST_CASE("a wrong value gets the nearest right one") {
  CHECK(nearest_value(*find_field("head_dim"), "100") == "96");
  CHECK(nearest_value(*find_field("head_dim"), "105") == "112");
  CHECK(nearest_value(*find_field("head_dim"), "0") == "16");
  CHECK(nearest_value(*find_field("head_dim"), "999") == "256");
  CHECK(nearest_value(*find_field("head_dim"), "0128").empty());
  CHECK(nearest_value(*find_field("gqa_ratio"), "ayn") == "any");
  CHECK(nearest_value(*find_field("causal"), "True") == "true");
  CHECK(nearest_value(*find_field("rescale"), "skipfirst") == "skip_first");
}

TEST_CASE("accepted values are said in words") {
  CHECK(accepted_values(*find_field("rescale")) == "always, skip_first or on_new_max");
  CHECK(accepted_values(*find_field("head_dim")) == "a multiple of 16 from 16 to 256");
  CHECK(accepted_values(*find_field("gqa_ratio")) == "any or a whole number from 1 to 256");
}

TEST_CASE("every family knows its keys from the table") {
  for (const Family& family : families()) {
    for (const std::string_view key : family.keys) CHECK(find_field(key) != nullptr);
    CHECK(&family_of(family.defaults) == &family);
  }
  for (const Field& field : fields()) {
    CHECK(std::ranges::any_of(families(), [&](const Family& family) {
      return std::ranges::find(family.keys, field.key) != family.keys.end();
    }));
  }
  CHECK(find_field("template") == nullptr);
  CHECK(find_arch("sm_75") == nullptr);
  CHECK(find_arch("sm_120")->shared_per_block == 99 * 1024);
}

TEST_CASE("a family that is made for one architecture runs there alone, and compilers are told so") {
  const Family& portable = families()[prefill_sm80];
  const Family& specific = families()[prefill_sm90];
  for (const int capability : {75, 80, 86, 90, 100, 120}) {
    CHECK(portable.runs_on(capability) == (capability >= 80));
    CHECK(specific.runs_on(capability) == (capability == 90));
  }
  CHECK(portable.target(90) == "90");
  CHECK(specific.target(90) == "90a");
}

TEST_CASE("the nearest word forgives a typo and invents nothing") {
  const std::vector<std::string> words{"B_r", "B_c", "head_dim", "stages"};
  CHECK(nearest_word("headdim", words) == "head_dim");
  CHECK(nearest_word("stage", words) == "stages");
  CHECK(nearest_word("b_r", words) == "B_r");
  CHECK(nearest_word("colour", words).empty());
  CHECK(nearest_word("", words).empty());
  CHECK(nearest_word(std::string(1000000, 's'), words).empty());
}

}  // namespace
