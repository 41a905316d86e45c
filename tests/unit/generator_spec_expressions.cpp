// Specs with expressions: their keys, the kernels they name, and what is wrong with them.
#include <doctest/doctest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/check.hpp"
#include "generator/emit.hpp"
#include "generator/expand.hpp"
#include "generator/need.hpp"
#include "generator/spec.hpp"
#include "generator/spec_text.hpp"
#include "generator/variant_json.hpp"

namespace attune {
namespace {

constexpr std::string_view alibi = R"(template: prefill_sm80
head_dim: 64
score: s + slope[h] * (k - p)
mask: [none, 'k <= p and document[b, p] == document[b, k]']
params: {slope: {per: [head], dtype: fp32}, document: {per: [batch, position], dtype: int32}}
)";

std::vector<Variant> variants_of(std::string_view text) {
  const Result<Spec> spec = parse_spec(text, "spec.yaml");
  for (const Diagnostic& problem : spec.problems) FAIL_CHECK(problem.text());
  REQUIRE(spec.ok());
  const Result<Expansion> expanded = expand(spec.value);
  for (const Diagnostic& problem : expanded.problems) FAIL_CHECK(problem.text());
  return expanded.value.variants;
}

std::string problem_of(std::string_view text) {
  const Result<Spec> spec = parse_spec(text, "spec.yaml");
  if (!spec.ok()) return spec.problems.front().text();
  const Result<Expansion> expanded = expand(spec.value);
  return expanded.ok() ? "" : expanded.problems.front().text();
}

}  // namespace

TEST_CASE("a spec's expressions name its kernels, and are found in their sources") {
  const std::vector<Variant> variants = variants_of(alibi);
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].score == variants[1].score);
  CHECK(variants[0].mask == 0);
  CHECK(variants[0].name().starts_with("prefill_sm80_bf16_d64_r128_c64_w4_s2_score_slope_"));
  CHECK(variants[0].name().find("_mask_") == std::string::npos);
  CHECK(variants[1].name().find("_mask_document_") != std::string::npos);
  const Result<TemplateFiles> templates = read_templates(ATTUNE_SOURCE_DIR "/templates");
  REQUIRE(templates.ok());
  for (const Variant& variant : variants) {
    const Result<Source> source = emit(variant, templates.value, "spec.yaml");
    REQUIRE(source.ok());
    CHECK(source.value.text.find("// s + slope[h] * real(k - p)\n") != std::string::npos);
    CHECK((source.value.text.find("bool sees(") != std::string::npos) == (variant.mask != 0));
  }
}

TEST_CASE("expressions survive as text: in a spec that is written, and in the values of a kernel") {
  const std::vector<Variant> variants = variants_of(alibi);
  for (const Variant& variant : variants) {
    std::string problem;
    const std::optional<Variant> again = variant_of(variant.family, values_line(variant), problem);
    REQUIRE_MESSAGE(again, problem);
    CHECK(*again == variant);
  }
  for (const Variant& variant : variants) {
    const std::vector<SpecText> texts = spec_texts(std::span(&variant, 1), {});
    REQUIRE(texts.size() == 1);
    CHECK(variants_of(texts.front().text) == std::vector{variant});
  }
}

TEST_CASE("a kernel serves the problems whose expressions it has, and no others") {
  const Variant variant = variants_of(alibi)[1];
  Need need{.head_dim = 64, .causal = 1, .score = variant.score, .mask = variant.mask};
  CHECK(meets(variant, need));
  need.mask = 0;
  REQUIRE(refusals(variant, need).size() == 1);
  CHECK(refusals(variant, need).front().starts_with("mask: the kernel has document[b, p] == document"));
  CHECK(!meets(families()[prefill_sm80].defaults, Need{.score = variant.score}));
}

TEST_CASE("what is wrong with a spec's expressions is named with file, line and column") {
  CHECK(problem_of("template: prefill_sm80\nscore: s + slop[h]\nparams: {slope: {per: [head], dtype: fp32}}\n") ==
        "spec.yaml:2:12: there is no name slop; did you mean slope?");
  CHECK(problem_of("template: decode_sm80\nmask: \"k < m\"\n").starts_with("spec.yaml:2:12: there is no name m"));
  for (const char* lines : {">\n  k <\n  m\n", "|\n  k <\n  m\n", ">-\n  k <\n  m\n", "k <\n  m\n", "\"k <\n  m\"\n"}) {
    CAPTURE(lines);
    const int line = lines[0] == 'k' || lines[0] == '"' ? 3 : 4;
    CHECK(problem_of(std::string("template: decode_sm80\nmask: ") + lines)
              .starts_with("spec.yaml:" + std::to_string(line) + ":3: there is no name m"));
  }
  for (const char* sign : {"|", ">", ">-"}) {
    CHECK(problem_of(std::string("template: decode_sm80\nmask: ") + sign + "\n  k <\nhead_dim: 64\n")
              .starts_with("spec.yaml:3:6: something is missing at the end"));
  }
  CHECK(problem_of("template: decode_sm80\nmask: k + p\n") ==
        "spec.yaml:2:7: the mask is an integer; it must be a boolean; as in k <= p");
  CHECK(problem_of("template: prefill_sm80\nparams: {s: {per: [head], dtype: fp32}}\n")
            .starts_with("spec.yaml:2:10: 's'"));
  CHECK(problem_of("template: prefill_sm80\nparams: {t: {per: [heads], dtype: fp32}}\n")
            .starts_with("spec.yaml:2:20: 'heads' is no dimension"));
  CHECK(problem_of("template: prefill_sm80\nparams: {t: {per: [head], dtype: fp64}}\n")
            .starts_with("spec.yaml:2:34: 'fp64' is no dtype"));
  CHECK(problem_of("template: combine\nscore: s\n").starts_with("spec.yaml:2:1: unknown key 'score'"));
  CHECK(problem_of("template: combine\nparams: {t: {per: [head], dtype: fp32}}\n") ==
        "spec.yaml:2:1: combine has no expressions; leave out params");
  CHECK(problem_of("template: prefill_sm90\nstream_k: true\nscore: s * 0.5\n").find("stream_k: false") !=
        std::string::npos);
}

}  // namespace attune
