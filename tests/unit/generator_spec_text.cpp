// Specs that are made: they ask for exactly the variants that they were made of, and read as a person would write them.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "generator/spec_text.hpp"

using namespace attune;

namespace {

const std::filesystem::path root = ATTUNE_SOURCE_DIR;

std::vector<Variant> variants_of(const std::filesystem::path& spec) {
  const Result<Collection> collected = collect(std::span(&spec, 1));
  REQUIRE(collected.ok());
  std::vector<Variant> result;
  for (const Wanted& one : collected.value.wanted) result.push_back(one.variant);
  return result;
}

/// What the specs ask for.
std::set<Variant> expanded(const std::vector<SpecText>& specs) {
  std::set<Variant> result;
  for (const SpecText& made : specs) {
    CAPTURE(made.text);
    const Result<Spec> spec = parse_spec(made.text, made.name + ".yaml");
    REQUIRE(spec.ok());
    const Result<Expansion> expansion = expand(spec.value);
    REQUIRE(expansion.ok());
    CHECK(expansion.value.refused.empty());
    CHECK(expansion.value.variants.size() == made.variants);
    for (const Variant& variant : expansion.value.variants) CHECK(result.insert(variant).second);
  }
  return result;
}

constexpr const char* shipped[] = {"prefill_sm80", "prefill_sm90", "decode",    "combine",
                                   "store_kv",     "merge_states", "quickstart"};

}  // namespace

TEST_CASE("a made spec asks for exactly the variants it was made of: the shipped ones") {
  for (const char* name : shipped) {
    CAPTURE(name);
    const std::vector<Variant> variants = variants_of(root / "specs" / (std::string(name) + ".yaml"));
    const std::vector<SpecText> specs = spec_texts(variants, {});
    CHECK(specs.size() == 1);
    CHECK(expanded(specs) == std::set<Variant>(variants.begin(), variants.end()));
  }
}

TEST_CASE("a made spec asks for exactly the variants it was made of: any part of all, for any GPUs") {
  std::mt19937 random(7);
  std::vector<Variant> all;
  for (const char* name : shipped) {
    for (const Variant& variant : variants_of(root / "specs" / (std::string(name) + ".yaml"))) all.push_back(variant);
  }
  for (int round = 0; round < 200; ++round) {
    std::set<Variant> chosen;
    std::set<Variant> met;
    for (Variant variant : all) {
      if (random() % 3 == 0 || !met.insert(variant).second) continue;
      // One of the GPUs that it fits, or all.
      const std::vector<Arch> archs = target_archs(variant);
      const Arch& arch = archs[random() % archs.size()];
      const auto bit = static_cast<unsigned>(find_arch(arch.name) - all_archs().data());
      if (round % 2 == 0) variant.arch = random() % 4 == 0 ? 0 : 1U << bit;
      chosen.insert(variant);
    }
    CHECK(expanded(spec_texts(std::vector<Variant>(chosen.begin(), chosen.end()), {})) == chosen);
  }
}

TEST_CASE("a made spec reads as one by hand: what is common at the top, what differs in rows, products in lists") {
  const std::vector<std::string> comment{"Made by a test", "", "  for a person"};
  const std::vector<SpecText> decode = spec_texts(variants_of(root / "specs/decode.yaml"), comment);
  REQUIRE(decode.size() == 1);
  CHECK(decode.front().name == "decode_sm80");
  CHECK(decode.front().text == R"(# Made by a test
#
#   for a person

template: decode_sm80
arch: any
dtype: [fp16, bf16]
warps: 4

variants:
  - {head_dim: 64, B_r: [16, 32], B_c: 128, stages: 2, paged: [false, true], page_multiple: 1}
  - {head_dim: 64, B_r: [16, 32], B_c: 128, stages: 2, paged: true, page_multiple: 16}
  - {head_dim: 128, B_r: [16, 32], B_c: 64, stages: 2, paged: [false, true], page_multiple: 1}
  - {head_dim: 128, B_r: [16, 32], B_c: 64, stages: 2, paged: true, page_multiple: 16}
  - {head_dim: 128, B_r: 16, B_c: 64, stages: 3, paged: [false, true], page_multiple: 1}
  - {head_dim: 128, B_r: 16, B_c: 64, stages: 3, paged: true, page_multiple: 16}
  - {head_dim: 256, B_r: 16, B_c: 64, stages: 1, paged: [false, true], page_multiple: 1}
  - {head_dim: 256, B_r: 16, B_c: 64, stages: 1, paged: true, page_multiple: 16}
)");
  const std::vector<SpecText> store = spec_texts(variants_of(root / "specs/store_kv.yaml"), {});
  REQUIRE(store.size() == 1);
  CHECK(store.front().text == R"(template: store_kv
arch: any
dtype: [fp16, bf16]
warps: 4
rotary: [none, interleaved, halves]
)");
}

TEST_CASE("a template that differs between GPUs has a spec for each set of them, named by it") {
  Variant small = variants_of(root / "specs/merge_states.yaml").front();
  Variant large = small;
  small.arch = 1U << 1U;
  large.arch = 1U << 0U | 1U << 4U;
  large.warps = 8;
  const std::vector<SpecText> specs = spec_texts(std::vector{small, large}, {});
  REQUIRE(specs.size() == 2);
  CHECK(specs[0].name == "merge_states_sm_86");
  CHECK(specs[1].name == "merge_states_sm_80_sm_90");
  CHECK(specs[1].text == R"(template: merge_states
arch: [sm_80, sm_90]
dtype: fp16
warps: 8
)");
  CHECK(expanded(specs) == std::set<Variant>{small, large});
}

TEST_CASE("the text does not depend on the order of variants") {
  std::vector<Variant> variants = variants_of(root / "specs/prefill_sm90.yaml");
  const std::string text = spec_texts(variants, {}).front().text;
  std::mt19937 random(3);
  std::shuffle(variants.begin(), variants.end(), random);
  CHECK(spec_texts(variants, {}).front().text == text);
}
