// What of masks and scores kernels have a faster way to do: limits around a query's position, soft caps.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <string_view>

#include "generator/expand.hpp"
#include "generator/expression/evaluate.hpp"
#include "generator/expression/limits.hpp"
#include "generator/expression/parse.hpp"
#include "generator/expression/pool.hpp"
#include "generator/spec.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {
namespace {

using namespace expression;

MaskLimits limits(std::string_view text) {
  const Result<Expression> mask = parse(text, Use::mask);
  REQUIRE(mask.ok());
  return limits_of(mask.value);
}

/// "left 3 right 0: q > 2"
std::string said(std::string_view text) {
  const MaskLimits found = limits(text);
  return (found.left < 0 ? "" : "left " + std::to_string(found.left) + " ") +
         (found.right < 0 ? "" : "right " + std::to_string(found.right) + " ") +
         (found.rest ? found.rest->text() : "all");
}

/// "4 keys or p - k < 8"
std::string first_said(std::string_view text) {
  const Result<Expression> mask = parse(text, Use::mask);
  REQUIRE(mask.ok());
  const std::optional<FirstKeys> found = first_keys_of(mask.value);
  return found ? std::to_string(found->count) + " keys or " + found->rest.text() : "none";
}

float cap(std::string_view text) {
  const Result<Expression> score = parse(text, Use::score);
  REQUIRE(score.ok());
  return softcap_of(score.value);
}

Variant variant_of_spec(const std::string& lines) {
  const Result<Spec> spec = parse_spec("template: prefill_sm90\nhead_dim: 128\n" + lines, "spec.yaml");
  REQUIRE(spec.ok());
  const Result<Expansion> expanded = expand(spec.value);
  REQUIRE(expanded.ok());
  REQUIRE(expanded.value.variants.size() == 1);
  return expanded.value.variants.front();
}

}  // namespace

TEST_CASE("comparisons of k and p are limits, whichever way they are written, and the narrowest counts") {
  CHECK(said("k <= p") == "right 0 all");
  CHECK(said("p >= k") == "right 0 all");
  CHECK(said("k < p + 1") == "right 0 all");
  CHECK(said("not (k > p)") == "not k > p");
  CHECK(said("k - p <= 7") == "right 7 all");
  CHECK(said("p - k < 1024") == "left 1023 all");
  CHECK(said("-3 <= k - p") == "left 3 all");
  CHECK(said("p - 5 <= k and k <= p and p - k < 4") == "left 3 right 0 all");
}

TEST_CASE("a few first keys are those of an alternative at the root, whichever way it is written") {
  CHECK(first_said("p - k < 8 or k < 4") == "4 keys or p - k < 8");
  CHECK(first_said("k <= 3 or p - k < 8") == "4 keys or p - k < 8");
  CHECK(first_said("q == k or p - k < 8 or 16 > k") == "16 keys or q == k or p - k < 8");
  CHECK(first_said("k < 4 or d[b, k] == 1 where d: int32[batch, position]") ==
        "4 keys or d[b, k] == 1 where d: int32[batch, position]");
  for (const char* text : {"k < 4", "p - k < 8 and k < 4", "p - k < 8 or k < 17", "p - k < 8 or k < 0",
                           "p - k < 8 or p < 4", "p - k < 8 or k > 4", "p - k < 8 or k < h"}) {
    CHECK_MESSAGE(first_said(text) == "none", text);
  }
}

TEST_CASE("what limits do not say stays: the other side of p, other names, what may hold instead, multiples") {
  for (const char* text : {"k < p", "k + 1 <= p", "p - k >= 2", "k <= q", "k <= p or k < 4", "k <= p + h", "k == p",
                           "k * 2 <= p * 2", "k <= 5", "p <= 5", "k + p <= 9"}) {
    CHECK_MESSAGE(!limits(text).any(), text);
    CHECK_MESSAGE(limits(text).rest == parse(text, Use::mask).value, text);
  }
  CHECK(said("q % 2 == 1 and k <= p and (p - k < 8 or k < 4) and k != 3") ==
        "right 0 q % 2 == 1 and (p - k < 8 or k < 4) and k != 3");
  CHECK(said("k <= p and d[b, p] == d[b, k] where d: int32[batch, position]") ==
        "right 0 d[b, p] == d[b, k] where d: int32[batch, position]");
}

TEST_CASE("limits and the rest show what the mask does, key by key") {
  for (const char* text : {"k <= p and p - k < 5", "k < p + 3 and k % 3 != p % 2", "p <= k + 2 and (k <= p or k < 4)",
                           "k < p and p - k <= 6", "p - k < 4 and k - p < 3 and q != 2"}) {
    const Expression mask = parse(text, Use::mask).value;
    const MaskLimits found = limits_of(mask);
    for (int p = 0; p < 12; ++p) {
      for (int k = 0; k < 12; ++k) {
        const Place place{.q = p / 2, .p = p, .k = k};
        const bool inside = (found.left < 0 || k >= p - found.left) && (found.right < 0 || k <= p + found.right);
        const bool seen = inside && (!found.rest || value_of(*found.rest, {}, place) != 0);
        CHECK_MESSAGE(seen == (value_of(mask, {}, place) != 0), text);
      }
    }
  }
}

TEST_CASE("a score that is a soft cap is known as one, and others are not") {
  CHECK(cap("30 * tanh(s / 30)") == 30);
  CHECK(cap("tanh(s / 2.5) * 2.5") == 2.5F);
  for (const char* text : {"30 * tanh(s / 20)", "tanh(s)", "30 * tanh(s * 30)", "-2.0 * tanh(s / -2.0)", "s * 30",
                           "30 * tanh((s + 1) / 30)", "30 * tanh(s / 30) + 1", "1e30 * tanh(s / 1e30)"}) {
    CHECK_MESSAGE(cap(text) == 0, text);
  }
}

TEST_CASE("a problem has limits and caps in its own fields, and a caller's bounds stay as narrow as they were") {
  const auto number = [](std::string_view text, Use use) { return number_of_text(text, use).value(); };
  Problem problem{.window_left = 3, .window_right = -1};
  problem.expressions.mask = number("k <= p + 2 and p - k < 9 and k % 2 == 0", Use::mask);
  problem.expressions.score = number("8 * tanh(s / 8)", Use::score);
  take_limits(problem);
  CHECK(problem.window_left == 3);
  CHECK(problem.window_right == 2);
  CHECK(problem.softcap == 8);
  CHECK(problem.expressions == CallExpressions{.mask = number("k % 2 == 0", Use::mask)});

  Problem capped{.window_left = -5, .softcap = 20};
  capped.expressions.mask = number("p - k < 9", Use::mask);
  capped.expressions.score = number("8 * tanh(s / 8)", Use::score);
  take_limits(capped);
  CHECK(capped.window_left == -5);  // wrong, and so to be reported
  CHECK(capped.softcap == 20);
  CHECK(capped.expressions.score != 0);  // of a score that has a cap already
}

TEST_CASE("a spec's kernel has the causal mask, a window and a cap for what expressions say of them") {
  const Variant causal = variant_of_spec("mask: k <= p\n");
  CHECK(causal.name() == variant_of_spec("causal: true\n").name());
  const Variant window = variant_of_spec("causal: true\nmask: p - k < 64\n");
  CHECK(window.name() == variant_of_spec("window: true\n").name());
  CHECK(variant_of_spec("causal: true\nmask: k <= p + 3\n") == causal);
  CHECK(variant_of_spec("score: 30 * tanh(s / 30)\n") == variant_of_spec("softcap: true\n"));
  const Result<Spec> both =
      parse_spec("template: prefill_sm90\nhead_dim: 128\ncausal: true\nwindow: true\nmask: k % 3 != 1\n", "spec.yaml");
  CHECK_FALSE((both.ok() && expand(both.value).ok()));  // as without a mask
  CHECK(variant_of_spec("mask: k <= p and k % 3 != 1\n") == variant_of_spec("causal: true\nmask: k % 3 != 1\n"));
}

}  // namespace attune
