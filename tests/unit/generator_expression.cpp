// Expressions of scores and masks: their parser, text, intervals, values and CUDA.
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/expression/cuda.hpp"
#include "generator/expression/derivative.hpp"
#include "generator/expression/evaluate.hpp"
#include "generator/expression/interval.hpp"
#include "generator/expression/parse.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/lab/expressed_attention.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::expression {
namespace {

using testing::random_expression;
using testing::up_to;

std::string normalised(std::string_view text, Use use) {
  const Result<Expression> parsed = parse(text, use);
  REQUIRE_MESSAGE(parsed.ok(), parsed.problems.front().text());
  return parsed.value.text();
}

/// "column: what", or "" where nothing is wrong.
std::string problem_of(std::string_view text, Use use) {
  const Result<Expression> parsed = parse(text, use, {}, {"spec.yaml", 3, 1});
  if (parsed.ok()) return "";
  REQUIRE(parsed.problems.size() == 1);
  CHECK(parsed.problems.front().where.line == 3);
  return std::to_string(parsed.problems.front().where.column) + ": " + parsed.problems.front().what;
}

double value(std::string_view text, Use use, const Place& place) {
  const Result<Expression> parsed = parse(text, use);
  REQUIRE_MESSAGE(parsed.ok(), parsed.problems.front().text());
  return value_of(parsed.value, {}, place);
}

constexpr ExpressionExtents extents{.heads_q = 4, .heads_kv = 2, .batch = 3, .queries = 90, .positions = 200};

Place random_place(Random& random) {
  return {.s = up_to(random, 100) / 25.0 - 2,
          .q = up_to(random, 89),
          .p = up_to(random, 300) - 100,
          .k = up_to(random, 199),
          .h = up_to(random, 3),
          .hk = up_to(random, 1),
          .b = up_to(random, 2)};
}

}  // namespace

TEST_CASE("an expression has one spelling for each tree") {
  CHECK(normalised("s+slope[ h ]*(k-p)  where slope : fp32[head]", Use::score) ==
        "s + slope[h] * real(k - p) where slope: fp32[head]");
  CHECK(normalised("((k)<=(p))and not(b==1 or h<2)", Use::mask) == "k <= p and not (b == 1 or h < 2)");
  CHECK(normalised("k - (p - q) - h <= -3", Use::mask) == "k - (p - q) - h <= -3");
  CHECK(normalised("1e-3*s", Use::score) == "0.001 * s");
  CHECK(normalised("-(-s) / 2", Use::score) == "--s / 2.0");
  CHECK(normalised("select(k // 16 == p % 4, s, 0)", Use::score) == "select(k // 16 == p % 4, s, 0.0)");
}

TEST_CASE("what is wrong in an expression is named with its column") {
  CHECK(problem_of("", Use::score) == "1: the expression is empty");
  CHECK(problem_of("s + slop[h] where slope: fp32[head]", Use::score) == "5: there is no name slop");
  CHECK(problem_of("k <= p <= q", Use::mask) == "8: comparisons do not follow each other");
  CHECK(problem_of("k + p", Use::mask) == "1: the mask is an integer; it must be a boolean");
  CHECK(problem_of("k < p", Use::score) == "1: the score is a boolean; it must be a number");
  CHECK(problem_of("s > 0", Use::mask) == "1: a mask does not know the score s");
  CHECK(problem_of("s + (k < p)", Use::score) == "3: + takes numbers, and this is a boolean");
  CHECK(problem_of("s // 2", Use::score) == "3: // takes integers");
  for (const char* nothing : {"0", "-0.0", "(1 - 1)", "-real(0)"}) {
    CHECK(problem_of(std::string("s / ") + nothing, Use::score) == "3: this divides by 0");
  }
  CHECK(problem_of("k % h == 0", Use::mask) == "3: this may divide by 0");
  CHECK(problem_of("k * k < p", Use::mask).starts_with("3: this integer may be "));
  CHECK(problem_of("s + t[-1] where t: fp32[4]", Use::score) ==
        "7: this index of t cannot be in range: it is at most -1");
  CHECK(problem_of("s + t[h + 4] where t: fp32[4]", Use::score) ==
        "7: this index of t cannot be in range: it is at least 4");
  CHECK(problem_of("s + t[h + 65536] where t: fp32[head]", Use::score) ==
        "7: this index of t cannot be in range: it is at least 65536");
  CHECK(problem_of("t[b, k + 16777216] == 1 where t: int32[batch, position]", Use::mask) ==
        "6: this index of t cannot be in range: it is at least 16777216");
  CHECK(problem_of("s + t[h + 65535] + t[h] where t: fp32[head]", Use::score).empty());
  CHECK(problem_of("s + t[h, k] where t: fp32[4]", Use::score) == "5: t has 2 indices");
  CHECK(problem_of("s + t[s] where t: fp32[4]", Use::score) == "7: an index of t is a real");
  CHECK(problem_of("min(s)", Use::score) == "1: min has 1 operands");
  CHECK(problem_of("s + mean(s, 2)", Use::score) == "5: there is no function mean");
  CHECK(problem_of("(s", Use::score) == "3: ')' is missing at the end");
  CHECK(problem_of("s s", Use::score) == "3: 's' stands where the expression ends");
  CHECK(problem_of("s $ 2", Use::score) == "3: '$' stands where the expression ends");
  CHECK(problem_of("k \u2264 p", Use::mask) == "3: '\u2264' stands where the expression ends");
  CHECK(problem_of("s where t: fp16[head]", Use::score) == "12: 'fp16' is no type");
  CHECK(problem_of("s where t: fp32[heads]", Use::score) == "17: 'heads' is no dimension");
  CHECK(problem_of("9999999999 < k", Use::mask) == "1: 9999999999 is beyond 32 bits");
  CHECK(problem_of("s * 1e99", Use::score) == "5: '1e99' is no number that fp32 has");
  CHECK(problem_of(std::string(200, '(') + "s", Use::score).find("nested more than") != std::string::npos);
  CHECK(problem_of(std::string(20000, ' ') + "s", Use::score).find("20001 characters") != std::string::npos);
  CHECK(problem_of(std::string("s + \0 1", 7), Use::score) == "5: the control character 0x00 stands in the text");
  CHECK(problem_of("s + \x1b", Use::score) == "5: the control character 0x1b stands in the text");
}

TEST_CASE("a mistake on a later line of a text is named with that line and its column there") {
  const Result<Expression> parsed = parse("k <= p and\n  foo[k] == 1", Use::mask, {}, {"mask", 1, 1});
  REQUIRE(parsed.problems.size() == 1);
  CHECK(parsed.problems.front().text().starts_with("mask:2:3: there is no name foo"));
}

TEST_CASE("values are those of mathematics: division rounds down, indices beyond an end are the end") {
  const Place place{.s = 1.5, .q = 3, .p = -7, .k = 9, .h = 1, .hk = 0, .b = 2};
  CHECK(value("s * 2 + k", Use::score, place) == 12);
  CHECK(value("p // 2", Use::score, place) == -4);
  CHECK(value("p % 4", Use::score, place) == 1);
  CHECK(value("p / 2", Use::score, place) == -3.5);
  CHECK(value("select(k > p, max(q, k), min(q, k))", Use::score, place) == 9);
  CHECK(value("k <= p or not (b == 1 and h == 1)", Use::mask, place) == 1);
  const Result<Expression> parsed = parse("t[b, k - 20] + t[b, k] where t: fp32[batch, 4]", Use::score);
  REQUIRE(parsed.ok());
  CHECK(value_of(parsed.value, std::array{Array{{3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}}, place) == 8 + 11);
}

TEST_CASE("inf is a real with a sign, in texts and in kernels") {
  CHECK(normalised("select(k<=p, s, - inf)", Use::score) == "select(k <= p, s, -inf)");
  CHECK(normalised("s - -inf * --inf", Use::score) == "s - -inf * inf");
  CHECK(normalised("bias[k] > -inf where bias: fp32[position]", Use::mask) ==
        "bias[k] > -inf where bias: fp32[position]");
  CHECK(value("select(k <= p, s, -inf)", Use::score, {.p = 1, .k = 2}) == -std::numeric_limits<double>::infinity());
  CHECK(problem_of("k // inf == 0", Use::mask) == "3: // takes integers");
  CHECK(problem_of("s + inf[h] where inf: fp32[head]", Use::score) == "18: a parameter's name is missing");
  const Result<Expression> hides = parse("select(k <= p, s, -inf) - inf", Use::score);
  REQUIRE(hides.ok());
  const std::string text = cuda_text(&hides.value, nullptr, false);
  CAPTURE(text);
  CHECK(text.find("return ((at.k <= at.p) ? s : minus_infinity()) - (-minus_infinity());") != std::string::npos);
}

TEST_CASE("a sum of two hundred terms is an expression, and its kernel opens no parenthesis for each") {
  std::string sum = "s";
  for (int i = 0; i < 200; ++i) sum += " + bias[h, k]";
  const Result<Expression> parsed = parse(sum + " where bias: fp32[head, position]", Use::score);
  REQUIRE_MESSAGE(parsed.ok(), parsed.problems.front().text());
  CHECK(parsed.value.formula() == sum);
  CHECK(cuda_text(&parsed.value, nullptr, false).find("((") == std::string::npos);
}

TEST_CASE("texts of random expressions give the same expression again, and the same number") {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const Use use = i % 2 == 0 ? Use::score : Use::mask;
    const std::string text = random_expression(random, use);
    CAPTURE(text);
    const Result<Expression> parsed = parse(text, use);
    REQUIRE_MESSAGE(parsed.ok(), parsed.problems.front().text());
    const std::string own = parsed.value.text();
    CAPTURE(own);
    const Result<Expression> again = parse(own, use);
    REQUIRE_MESSAGE(again.ok(), again.problems.front().text());
    CHECK(again.value == parsed.value);
    CHECK(number_of(again.value) == number_of(parsed.value));
    CHECK(text_of_number(number_of(parsed.value)) == own);
  }
  CHECK(number_of_text("none", Use::mask) == 0);
}

TEST_CASE("intervals have every value, and a box that all or none sees is seen so") {
  Random random(2);
  int decided = 0;
  for (int i = 0; i < 1500; ++i) {
    const Result<Expression> parsed = parse(random_expression(random, Use::mask), Use::mask);
    REQUIRE(parsed.ok());
    CAPTURE(parsed.value.text());
    std::vector<Array> arrays;
    for (const Parameter& parameter : parsed.value.parameters) {
      arrays.push_back(random_array(random.below(1000), parameter, extents));
    }
    const Place corner = random_place(random);
    const int diagonal = corner.p - corner.q;
    const int rows = up_to(random, 20);
    const int keys = up_to(random, 20);
    const Ranges ranges{
        Interval{},           {corner.q, corner.q + rows}, {corner.p, corner.p + rows}, {corner.k, corner.k + keys},
        {corner.h, corner.h}, {corner.hk, corner.hk},      {corner.b, corner.b}};
    const Visibility seen = visibility_of(parsed.value.root, ranges);
    if (!is_bounded(parsed.value.root)) CHECK(seen == Visibility::some);
    if (seen == Visibility::some) continue;
    ++decided;
    for (int row = 0; row <= rows; ++row) {
      for (int key = 0; key <= keys; ++key) {
        Place place = corner;
        place.q += row;
        place.p = place.q + diagonal;
        place.k += key;
        REQUIRE(value_of(parsed.value, arrays, place) == (seen == Visibility::all ? 1 : 0));
      }
    }
  }
  CHECK(decided > 500);
}

TEST_CASE("gradients pass scores that only add to s, and no others") {
  const auto passes = [](std::string_view text) {
    const Result<Expression> parsed = parse(text, Use::score);
    REQUIRE_MESSAGE(parsed.ok(), parsed.problems.front().text());
    return has_unit_slope(parsed.value);
  };
  for (const std::string_view text :
       {"s", "s + 0.5", "0.5 - (1.0 - s)", "-(-s)", "s + real(k)", "s + s - s", "select(k <= p, s, s - 1)",
        "s + x[h] * (k - p) where x: fp32[head]", "select(k <= p, s, -inf)", "select(k <= p, -inf, s + 1)"}) {
    CAPTURE(text);
    CHECK(passes(text));
  }
  for (const std::string_view text :
       {"0.5", "-s", "s + s", "2 * s", "s * 1.0", "s / 2", "abs(s)", "min(s, 1.0)", "tanh(s)",
        "select(s > 0, s, s + 1)", "select(k <= p, s, 0.5)", "s - s", "select(k <= p, s, inf)",
        "select(k <= p, 2 * s, -inf)", "select(s > 0, s, -inf)"}) {
    CAPTURE(text);
    CHECK_FALSE(passes(text));
  }
}

TEST_CASE("a mask is told which blocks it leaves where integers that it looks up decide, and nowhere else") {
  const auto asks = [](std::string_view text) { return bounds_by_lookups(parse(text, Use::mask).value); };
  CHECK(asks("d[p] == d[k] where d: int32[position]"));
  CHECK(asks("k <= p and not (d[p] != d[k]) where d: int32[position]"));
  CHECK(asks("k < n[b] where n: int32[batch]"));
  CHECK_FALSE(asks("k <= p"));
  CHECK_FALSE(asks("x[k] > 0.5 where x: fp32[position]"));
  CHECK_FALSE(asks("k <= p and x[k] > 0.5 where x: fp32[position]"));
}

TEST_CASE("no text makes the parser do anything but answer") {
  Random random(3);
  constexpr std::string_view alphabet = "skpqhb0189.e+-*/%<>=!()[],:_ wherandotminfx\n\"'{}$\x80";
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = random_expression(random, Use::score);
    for (int edits = up_to(random, 4); edits > 0; --edits) {
      const std::size_t at = random.below(text.size() + 1);
      const char c = alphabet[random.below(alphabet.size())];
      if (random.below(3) == 0 && at < text.size()) {
        text.erase(at, 1 + random.below(4));
      } else if (random.below(2) == 0 && at < text.size()) {
        text[at] = c;
      } else {
        text.insert(at, 1, c);
      }
    }
    const Result<Expression> result = parse(text, random.below(2) == 0 ? Use::score : Use::mask);
    if (result.ok()) {
      ++parsed;
      CHECK(parse(result.value.text(), result.value.use).ok());
      CHECK(!cuda_text(&result.value, nullptr, true).empty());
    } else {
      CHECK(result.problems.front().where.column >= 1);
      CHECK(result.problems.front().where.column <= static_cast<int>(text.size()) + 1);
    }
  }
  CHECK(parsed > 1000);
}

TEST_CASE("what a key adds is known of a score that is s and a multiple of k, and of no other") {
  const auto added = [](std::string_view text) -> std::string {
    const Result<Expression> score = parse(text, Use::score);
    REQUIRE_MESSAGE(score.ok(), score.problems.front().text());
    const std::optional<Node> step = added_by_key(score.value);
    return step ? Expression{Use::score, *step, score.value.parameters}.formula() : "";
  };
  CHECK(added("s + slope[h] * (k - p) where slope: fp32[head]") == "slope[h]");
  CHECK(added("s - slope[b, h] * (p - 3 * k) / 4 where slope: fp32[batch, head]") == "-(slope[b, h] * -3.0 / 4.0)");
  CHECK(added("k * 0.5 + s - (h + 1.0) * k") == "0.5 - (real(h) + 1.0)");
  CHECK(added("s + select(h < 2, 0.5, 0.25) * k") == "select(h < 2, 0.5, 0.25)");
  CHECK(added("s + h * 1.0 * p") == "");
  CHECK(added("2 * s + k") == "");
  CHECK(added("s + abs(k - p)") == "");
  CHECK(added("s + real(k) * k") == "");
  CHECK(added("s + k // 2") == "");
  CHECK(added("s + h / (k + 1)") == "");
  CHECK(added("s + bias[k] where bias: fp32[position]") == "");
  CHECK(added("s + select(k < p, 0.5, 0.25) * p") == "");
}

TEST_CASE("the emitted struct has a function for each part that a reader finds") {
  const Result<Expression> score = parse("s + slope[h] * (k - p) where slope: fp32[head]", Use::score);
  const Result<Expression> mask = parse("k <= p and d[b, k] == d[b, p] where d: int32[batch, position]", Use::mask);
  REQUIRE((score.ok() && mask.ok()));
  const std::string text = cuda_text(&score.value, &mask.value, false);
  CAPTURE(text);
  CHECK(text.find("return s + (row.slope_0 * static_cast<float>(at.k - at.p));") != std::string::npos);
  CHECK(text.find("return {d_at(at.b, at.k)};") != std::string::npos);
  CHECK(text.find("return (at.k <= at.p) & (key.d_0 == row.d_1);") != std::string::npos);
  CHECK(text.find("return both(less_equal(in.k, in.p), unknown());") != std::string::npos);
  CHECK(text.find("added_by_key") == std::string::npos);
  const std::string tilted = cuda_text(&score.value, nullptr, true);
  CAPTURE(tilted);
  CHECK(tilted.find("float added_by_key(const ScorePlace& /*at*/, const Row& row) const {\n    return row.slope_0;") !=
        std::string::npos);
  CHECK(score.value.slug().starts_with("slope_"));
  CHECK(text.find("first_keys = 0;") != std::string::npos);
  const Result<Expression> first = parse("p - k < 8 or k < 4", Use::mask);
  REQUIRE(first.ok());
  const std::string apart = cuda_text(nullptr, &first.value, false, true);
  CAPTURE(apart);
  CHECK(apart.find("first_keys = 4;") != std::string::npos);
  CHECK(apart.find("return (at.p - at.k) < 8;") != std::string::npos);
  CHECK(apart.find("return less(difference(in.p, in.k), only(8));") != std::string::npos);
  const Result<Expression> other = parse("slope[h] < 1 where slope: int32[head]", Use::mask);
  REQUIRE(other.ok());
  CHECK(conflict_of(&score.value, &other.value) == "the score has slope: fp32[head], the mask slope: int32[head]");
}

}  // namespace attune::expression
