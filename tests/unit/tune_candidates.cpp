// From search specs to candidates.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "generator/expand.hpp"
#include "generator/spec.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/tune/candidates.hpp"

namespace {

using namespace attune;

Spec parsed(std::string_view text) {
  const Result<Spec> spec = parse_spec(text, "s.yaml");
  for (const Diagnostic& problem : spec.problems) FAIL_CHECK(problem.text());
  return spec.value;
}

std::string problems_of_spec(std::string_view text) {
  std::string all;
  for (const Diagnostic& problem : parse_spec(text, "s.yaml").problems) all += problem.text() + "\n";
  return all;
}

Device device(const char* arch = "sm_90") { return device_of(*find_arch(arch)); }

Problem prefill(int head_dim, bool causal, int heads_kv = 16) {
  return {.batch = 4,
          .heads_q = 16,
          .heads_kv = heads_kv,
          .seqlen_q = 2048,
          .seqlen_k = 2048,
          .head_dim = head_dim,
          .causal = causal};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("below tune: a key takes a value, a list or a range with both ends") {
  const Spec spec = parsed(
      "template: prefill_sm90\ncausal: true\ntune: {B_r: {from: 64, to: 192, step: 64}, stages: [2, 3], B_c: 64}\n");
  CHECK(spec.tune.keys.at("B_r").values == std::vector{64, 128, 192});
  CHECK(spec.tune.keys.at("stages").values == std::vector{2, 3});
  CHECK(spec.tune.keys.at("B_c").values == std::vector{64});
  CHECK(spec.common.keys.size() == 1);
}

TEST_CASE("a spec with tune: multiplies out like one with lists") {
  const Result<Expansion> expansion =
      expand(parsed("template: prefill_sm80\nhead_dim: 64\ntune: {B_c: [64, 128], causal: [false, true]}\n"));
  CHECK(expansion.ok());
  CHECK(expansion.value.variants.size() == 4);
}

TEST_CASE("what is wrong below tune: is reported at its place") {
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: []\n"), "s.yaml:2:7: tune is a list"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_cc: 64}\n"), "s.yaml:2:8: unknown key 'B_cc'"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\nB_c: 64\ntune: {B_c: 64}\n"),
                 "s.yaml:3:8: B_c stands in tune and elsewhere"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\nvariants:\n  - {B_c: 64}\ntune: {B_c: 64}\n"),
                 "B_c stands in tune and elsewhere"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {arch: sm_90}\n"), "arch stands in tune"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_c: {from: 64, to: 100, step: 16}}\n"),
                 "'100' is no bound of B_c"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_c: {from: 64, to: 112, step: 32}}\n"),
                 "the range of B_c does not lead"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_c: {from: 64, to: 112}}\n"),
                 "the range of B_c does not lead"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_c: {from: 64, to: 112, stride: 16}}\n"),
                 "unknown key 'stride'"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\nB_c: {from: 64, to: 112, step: 16}\n"), "B_c is a mapping"));
  CHECK(contains(problems_of_spec("template: prefill_sm90\ntune: {B_c: 64-112}\n"),
                 "'64-112' is not a value of B_c; a multiple of 16 from 16 to 256, or a range as `{from: "));
}

TEST_CASE("the heuristic's choice is the first candidate, each is there once, and all can serve") {
  const std::vector<Spec> specs{parsed("template: prefill_sm90\ntune: {B_r: [128, 192], B_c: [64, 128, 176]}\n")};
  for (const int head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      const Problem problem = prefill(head_dim, causal);
      const tune::Candidates candidates = tune::candidates_for(problem, device(), specs);
      CHECK(candidates.variants.front() == choose_own(problem, device()).variant);
      CHECK(std::set(candidates.variants.begin(), candidates.variants.end()).size() == candidates.variants.size());
      for (const Variant& variant : candidates.variants) {
        CHECK(check(variant).empty());
        CHECK(refusals(variant, problem, device()).empty());
        CHECK(variant.head_dim == head_dim);
        CHECK(variant.causal == (causal ? 1 : 0));
      }
      int refused = 0;
      for (const auto& [reason, group] : candidates.refused) refused += group.count;
      CHECK(refused > 0);
      CHECK(candidates.variants.size() + static_cast<std::size_t>(refused) >= 6);
      CHECK(candidates.variants.size() + static_cast<std::size_t>(refused) <= 7);
    }
  }
}

TEST_CASE("packed candidates are for the problem's ratio of heads, and only where one can be packed") {
  const std::vector<Spec> specs{parsed("template: prefill_sm90\ntune: {pack_gqa: [false, true]}\n")};
  const tune::Candidates grouped = tune::candidates_for(prefill(128, true, 4), device(), specs);
  const auto packed = std::ranges::find(grouped.variants, 1, &Variant::pack_gqa);
  REQUIRE(packed != grouped.variants.end());
  CHECK(packed->gqa_ratio == 4);
  const tune::Candidates plain = tune::candidates_for(prefill(128, true), device(), specs);
  CHECK(std::ranges::find(plain.variants, 1, &Variant::pack_gqa) == plain.variants.end());
  CHECK(plain.refused.at("gqa_ratio").count == 1);
}

TEST_CASE("of the ratios that a search names, decode races the problem's own and any") {
  const std::vector<Spec> specs{
      parsed("template: decode_sm80\ntune: {gqa_ratio: [any, 1, 4, 8], one_query: [false, true]}\n"
             "exclude: [{gqa_ratio: [1, 4, 8], one_query: false}]\n")};
  DecodeProblem decode{.heads_q = 32, .heads_kv = 8, .max_seqlen_k = 4096, .equal_lengths = true};
  const auto ratios = [&] {
    std::vector<int> found;
    for (const Variant& variant : tune::candidates_for(tuned_problem(decode), device(), specs).variants) {
      found.push_back(variant.gqa_ratio);
    }
    return found;
  };
  CHECK(ratios() == std::vector{0, 4});
  decode.seqlen_q = 2;
  CHECK(ratios() == std::vector{0});
}

TEST_CASE("gradients that need the same bits race kernels that give them, the others both kinds") {
  const std::vector<Spec> specs{
      parsed("template: backward_sm90\ntune: {B_c: [64, 128], deterministic: [false, true]}\n")};
  const auto candidates = [&](bool any_order) {
    return tune::candidates_for(tuned_problem(BackwardProblem::of(prefill(128, true), any_order)), device(), specs);
  };
  const tune::Candidates same_bits = candidates(false);
  CHECK(same_bits.variants.size() == 2);
  CHECK(std::ranges::count(same_bits.variants, 1, &Variant::deterministic) == 2);
  CHECK(same_bits.refused.at("deterministic").count == 2);
  const tune::Candidates any_order = candidates(true);
  CHECK(any_order.variants.size() == 4);
  CHECK(any_order.variants.front().deterministic == 0);
  CHECK(std::ranges::count(any_order.variants, 1, &Variant::deterministic) == 2);
}

TEST_CASE("specs of other operations and other GPUs have nothing for a problem") {
  const std::vector<Spec> specs{parsed("template: decode_sm80\ntune: {stages: [1, 2, 3]}\n"),
                                parsed("template: prefill_sm90\ntune: {stages: [2, 3]}\n"),
                                parsed("template: prefill_sm80\narch: sm_80\ntune: {stages: [1, 2]}\n")};
  for (const Variant& variant : tune::candidates_for(prefill(64, false), device("sm_90"), specs).variants) {
    CHECK(variant.family == prefill_sm90);
  }
  for (const Variant& variant : tune::candidates_for(prefill(64, false), device("sm_80"), specs).variants) {
    CHECK(variant.family == prefill_sm80);
  }
  const DecodeProblem decode{.heads_q = 32, .heads_kv = 8, .max_seqlen_k = 4096, .equal_lengths = true};
  CHECK(tune::candidates_for(tuned_problem(decode), device(), specs).variants.size() == 3);
}

TEST_CASE("interleaved splits are candidates only where a sequence has several") {
  const std::vector<Spec> specs{parsed("template: decode_sm80\ntune: {B_c: [64, 128], interleave: [true, false]}\n")};
  const auto interleaved = [&](int batch) {
    const DecodeProblem problem{
        .batch = batch, .heads_q = 32, .heads_kv = 8, .max_seqlen_k = 8192, .equal_lengths = true};
    const tune::Candidates candidates = tune::candidates_for(tuned_problem(problem), device(), specs);
    CHECK(std::set(candidates.variants.begin(), candidates.variants.end()).size() == candidates.variants.size());
    CHECK(std::ranges::count(candidates.variants, 0, &Variant::interleave) == 2);
    return std::ranges::count(candidates.variants, 1, &Variant::interleave);
  };
  CHECK(interleaved(1) == 2);
  CHECK(interleaved(64) == 0);
}

TEST_CASE("the shipped search specs are sound and hold the shipped choices") {
  std::vector<Spec> specs;
  for (const char* name : {"prefill_sm90", "prefill_sm80", "decode", "backward_sm90", "backward_sm80"}) {
    Result<Spec> spec = read_spec(std::string(ATTUNE_SOURCE_DIR) + "/specs/tune/" + name + ".yaml");
    for (const Diagnostic& problem : spec.problems) FAIL_CHECK(problem.text());
    CHECK_FALSE(spec.value.tune.keys.empty());
    specs.push_back(std::move(spec.value));
  }
  for (const char* arch : {"sm_80", "sm_89", "sm_90"}) {
    for (const int head_dim : {64, 128, 256}) {
      CAPTURE(arch);
      CAPTURE(head_dim);
      const tune::Candidates candidates = tune::candidates_for(prefill(head_dim, true), device(arch), specs);
      CHECK(candidates.variants.size() >= 5);
      CHECK(candidates.variants.size() <= 250);
      for (const bool any_order : {false, true}) {
        const BackwardProblem gradients = BackwardProblem::of(prefill(head_dim, true), any_order);
        const std::size_t count = tune::candidates_for(tuned_problem(gradients), device(arch), specs).variants.size();
        CHECK((count >= 3 || head_dim == 256));  // of which some GPUs hold one tile alone
        CHECK(count <= 40);
      }
    }
  }
}

}  // namespace
