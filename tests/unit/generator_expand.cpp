// Expansion: lists, rows, exclusion, limits and refused combinations.
#include <doctest/doctest.h>

#include "generator/expand.hpp"

namespace {

using namespace attune;

Result<Expansion> expanded(std::string_view text) {
  const Result<Spec> spec = parse_spec(text, "s.yaml");
  for (const Diagnostic& problem : spec.problems) FAIL_CHECK(problem.text());
  return expand(spec.value);
}

std::string names_of(std::string_view text) {
  const Result<Expansion> expansion = expanded(text);
  for (const Diagnostic& problem : expansion.problems) FAIL_CHECK(problem.text());
  std::string names;
  for (const Variant& variant : expansion.value.variants) names += variant.name().substr(13) + "\n";
  return names;
}

std::string problems_of(std::string_view text) {
  std::string all;
  for (const Diagnostic& problem : expanded(text).problems) all += problem.text() + "\n";
  return all;
}

TEST_CASE("a spec of nothing but a template is the default variant") {
  CHECK(names_of("template: prefill_sm80\n") == "bf16_d128_r128_c64_w4_s2\n");
}

TEST_CASE("what a spec leaves out has the default of its own template") {
  const Result<Expansion> expansion = expanded("template: prefill_sm90\n");
  REQUIRE(expansion.value.variants.size() == 1);
  CHECK(expansion.value.variants[0] == families()[prefill_sm90].defaults);
}

TEST_CASE("lists multiply out in the order of the spec's values, later fields faster") {
  CHECK(names_of("template: prefill_sm80\ncausal: [true, false]\ndtype: [fp16, bf16]\n") ==
        "fp16_d128_r128_c64_w4_s2_causal\n"
        "fp16_d128_r128_c64_w4_s2\n"
        "bf16_d128_r128_c64_w4_s2_causal\n"
        "bf16_d128_r128_c64_w4_s2\n");
}

TEST_CASE("rows complete and override the common keys") {
  CHECK(names_of("template: prefill_sm80\n"
                 "B_r: 128\n"
                 "B_c: 32\n"
                 "variants:\n"
                 "  - {head_dim: 64, causal: [false, true]}\n"
                 "  - {head_dim: 256, B_r: 64}\n") ==
        "bf16_d64_r128_c32_w4_s2\n"
        "bf16_d64_r128_c32_w4_s2_causal\n"
        "bf16_d256_r64_c32_w4_s2\n");
}

TEST_CASE("a variant that two rows ask for comes once") {
  CHECK(names_of("template: prefill_sm80\nvariants:\n  - head_dim: [64, 128]\n  - head_dim: 128\n") ==
        "bf16_d64_r128_c64_w4_s2\n"
        "bf16_d128_r128_c64_w4_s2\n");
}

TEST_CASE("arch goes into every variant and multiplies nothing") {
  const Result<Expansion> expansion = expanded("template: prefill_sm80\narch: [sm_80, sm_86]\ncausal: [false, true]\n");
  REQUIRE(expansion.value.variants.size() == 2);
  for (const Variant& variant : expansion.value.variants) CHECK(variant.arch == 3);
}

TEST_CASE("exclude drops what matches every key of a row") {
  CHECK(names_of("template: prefill_sm80\n"
                 "head_dim: [64, 128]\n"
                 "causal: [false, true]\n"
                 "exclude:\n"
                 "  - {head_dim: 64, causal: true}\n") ==
        "bf16_d64_r128_c64_w4_s2\n"
        "bf16_d128_r128_c64_w4_s2\n"
        "bf16_d128_r128_c64_w4_s2_causal\n");
  CHECK(names_of("template: prefill_sm80\nhead_dim: [64, 96, 128]\nexclude: [{head_dim: [64, 128]}]\n") ==
        "bf16_d96_r128_c64_w4_s2\n");
}

TEST_CASE("exclude that matches nothing, or everything, is a mistake") {
  CHECK(problems_of("template: prefill_sm80\nexclude:\n  - {head_dim: 64}\n") ==
        "s.yaml:3:5: this row of exclude matches no combination; remove it, or correct a value\n");
  CHECK(problems_of("template: prefill_sm80\nexclude:\n  - {head_dim: 128}\n") ==
        "s.yaml:1:1: exclude leaves no combination; exclude fewer\n");
}

TEST_CASE("what a spec asks for without a choice must be feasible") {
  CHECK(problems_of("template: prefill_sm80\nwarps: 4\nB_r: 96\n") ==
        "s.yaml:3:1: B_r is 96, which is not a multiple of 16 * warps = 64: every warp computes whole 16-row tiles; "
        "nearest that passes: B_r 64\n");
}

TEST_CASE("a refusal of a field that the spec does not name points at the row, or at the spec") {
  CHECK(problems_of("template: prefill_sm80\nwarps: 16\n").starts_with("s.yaml:1:1: B_r is 128, which is not"));
  CHECK(problems_of("template: prefill_sm80\nvariants:\n  - {warps: 16}\n").starts_with("s.yaml:3:5: B_r is 128, "));
}

TEST_CASE("of what lists multiply out to, refused combinations are listed with their reasons") {
  const Result<Expansion> expansion = expanded("template: prefill_sm80\nB_r: [64, 96, 128]\n");
  CHECK(expansion.ok());
  CHECK(expansion.value.variants.size() == 2);
  REQUIRE(expansion.value.refused.size() == 1);
  CHECK(expansion.value.refused[0].variant.B_r == 96);
  REQUIRE(expansion.value.refused[0].reasons.size() == 1);
  CHECK(expansion.value.refused[0].reasons[0].where.line == 2);
}

TEST_CASE("a row of which nothing passes is a problem even when other rows pass") {
  CHECK(problems_of("template: prefill_sm80\n"
                    "causal: [false, true]\n"
                    "variants:\n"
                    "  - {B_r: 128}\n"
                    "  - {B_r: 96}\n") ==
        "s.yaml:5:6: B_r is 96, which is not a multiple of 16 * warps = 64: every warp computes whole 16-row tiles; "
        "nearest that passes: B_r 64\n");
}

TEST_CASE("an excluded combination is not checked") {
  const Result<Expansion> expansion = expanded("template: prefill_sm80\nB_r: [96, 128]\nexclude: [{B_r: 96}]\n");
  CHECK(expansion.ok());
  CHECK(expansion.value.refused.empty());
}

std::string list_to(int last, int step) {
  std::string list = "[";
  for (int value = step; value <= last; value += step) list += (value > step ? ", " : "") + std::to_string(value);
  return list + "]";
}

TEST_CASE("rows of exclude are bounded by what is compared, and their problems by what is read") {
  std::string lists = "template: prefill_sm80\ncausal: [false, true]\ndtype: [fp16, bf16]\nexclude:\n";
  for (int i = 0; i < 300; ++i) lists += "  - {head_dim: 64}\n";
  CHECK(expanded(lists).problems.size() == 201);
  std::string many =
      "template: prefill_sm80\nB_r: [16, 32, 48, 64, 80, 96, 112, 128]\nB_c: [16, 32, 48, 64, 80, 96, 112, "
      "128]\nhead_dim: [64, 80, 96, 112, 128, 192, 256]\nstages: [1, 2, 3]\nwarps: [4, 8]\ncausal: [false, "
      "true]\ndtype: [fp16, bf16]\nexclude:\n";
  for (int i = 0; i < 4000; ++i) many += "  - {B_r: 16}\n";
  CHECK(problems_of(many).find("exclude has 4000 rows for ") != std::string::npos);
}

TEST_CASE("a spec that multiplies out to more than the limit is refused at once") {
  const std::string wide = "head_dim: " + list_to(256, 16) + "\nB_r: " + list_to(256, 16) +
                           "\nB_c: " + list_to(256, 16) +
                           "\nasync_copy: [false, true]\neager_load: [false, true]\nswizzle: [false, true]\n";
  const std::string message =
      "s.yaml:1:1: the lists multiply out to more than 32768 combinations; shorten a list, or "
      "use several specs\n";
  CHECK(expanded("template: prefill_sm80\n" + wide).ok());
  CHECK(problems_of("template: prefill_sm80\n" + wide + "causal: [false, true]\n") == message);
  // Far beyond any integer.
  CHECK(problems_of("template: prefill_sm80\n" + wide + "gqa_ratio: " + list_to(256, 1) + "\nwarps: " + list_to(16, 1) +
                    "\nstages: [1, 2, 3, 4]\nQ_fragment_tiles: " + list_to(16, 1) + "\nK_fragment_tiles: " +
                    list_to(16, 1) + "\nV_fragment_tiles: " + list_to(16, 1) + "\n") == message);
  CHECK(problems_of("template: prefill_sm80\n" + wide + "variants: [{causal: false}, {causal: true}]\n") == message);
}

}  // namespace
