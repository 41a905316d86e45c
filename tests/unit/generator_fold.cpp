// Which lines of a template a variant has: what the generator decides, what it leaves, what it refuses where.
#include <doctest/doctest.h>

#include "generator/fold.hpp"

namespace {

using namespace attune;

/// A variant that takes turns, with two stages in bf16.
Variant some_variant() {
  Variant variant = families()[prefill_sm90].defaults;
  variant.ping_pong = 1;
  variant.causal = 0;
  variant.stages = 2;
  return variant;
}

/// The lines that are kept, each with its end.
std::string kept(const std::string& text, const Variant& variant = some_variant()) {
  const TemplateFile file("some.cuh", text);
  const Result<std::vector<bool>> lines = fold(file, variant);
  for (const Diagnostic& problem : lines.problems) FAIL_CHECK(problem.text());
  REQUIRE(lines.value.size() == file.lines().size());
  std::string result;
  for (std::size_t i = 0; i < lines.value.size(); ++i) {
    if (lines.value[i]) result += std::string(file.lines()[i]) + "\n";
  }
  return result;
}

std::string problems(const std::string& text) {
  const TemplateFile file("some.cuh", text);
  std::string all;
  for (const Diagnostic& problem : fold(file, some_variant()).problems) all += problem.text() + "\n";
  return all;
}

std::string choice(const std::string& condition) { return "#if " + condition + "\nyes\n#else\nno\n#endif\n"; }

TEST_CASE("of a choice by a knob the branch that holds is kept, without the directives") {
  CHECK(kept("a\n" + choice("variant::ping_pong") + "b\n") == "a\nyes\nb\n");
  CHECK(kept(choice("variant::causal")) == "no\n");
  CHECK(kept(choice("!variant::ping_pong")) == "no\n");
  CHECK(kept(choice("! variant::causal")) == "yes\n");
  CHECK(kept("#if variant::causal\na\n#endif\nb\n") == "b\n");
}

TEST_CASE("a number or a word is chosen by its value") {
  CHECK(kept(choice("variant::stages == 2")) == "yes\n");
  CHECK(kept(choice("variant::stages == 3")) == "no\n");
  CHECK(kept(choice("variant::stages != 2")) == "no\n");
  CHECK(kept(choice("variant::stages != 3")) == "yes\n");
  CHECK(kept(choice("variant::dtype == Dtype::bf16")) == "yes\n");
  CHECK(kept(choice("variant::dtype==Dtype::fp16")) == "no\n");
  CHECK(kept(choice("variant::gqa_ratio == 0")) == "yes\n");
  CHECK(kept(choice("variant::stages == variant::Q_stages")) == "yes\n");
  CHECK(kept(choice("variant::stages == variant::head_dim")) == "no\n");
  CHECK(kept(choice("variant::stages != variant::head_dim")) == "yes\n");
  CHECK(kept(choice("variant::causal == false")) == "yes\n");
}

TEST_CASE("a choice inside a branch that does not hold keeps nothing") {
  CHECK(kept("#if variant::causal\n" + choice("variant::ping_pong") + "a\n#else\n" + choice("variant::causal") +
             "b\n#endif\nc\n") == "no\nb\nc\n");
}

TEST_CASE("comments and blanks do not matter to a directive") {
  CHECK(kept("  #  if variant::causal // unless causal\na\n# else /* then */\nb\n #endif  // causal\n") == "b\n");
  CHECK(kept("// #if variant::causal\na\n/*\n#endif\n*/\n") == "// #if variant::causal\na\n/*\n#endif\n*/\n");
}

TEST_CASE("what the preprocessor decides stays, but every source is C++") {
  const std::string text = "#ifndef A\n#define A 1\n#elif A\na\n#else\nb\n#endif\n#if defined(B)\nb\n#endif\n";
  CHECK(kept(text) == text);
  CHECK(kept("#if variant::causal\n" + text + "#else\n" + text + "#endif\n") == text);
  CHECK(kept("#ifdef A\n" + choice("variant::causal") + "#endif\n") == "#ifdef A\nno\n#endif\n");
  CHECK(kept("#ifdef __cplusplus\na\n#else\nb\n#endif\n") == "a\n");
}

TEST_CASE("a condition that is not understood is an error at its line") {
  const std::string fix =
      "; `#if variant::key`, `#if !variant::key`, `#if variant::key == value`, `== variant::other` or `!=`\n";
  for (const char* condition : {"variant::causal && variant::ping_pong", "A && variant::causal",
                                "!variant::stages == 2", "variant::", "(variant::causal)", "variant::stages < 2"}) {
    CAPTURE(condition);
    CHECK(problems("a\n" + choice(condition)) ==
          "templates/some.cuh:2:1: the generator cannot tell whether " + std::string(condition) + fix);
  }
  CHECK(problems(choice("variant::stages")) ==
        "templates/some.cuh:1:1: stages is neither true nor false; `#if variant::stages == 2`\n");
}

TEST_CASE("a value that no variant has is an error, with the nearest one") {
  CHECK(problems(choice("variant::dtype == Dtype::bf17")) ==
        "templates/some.cuh:1:1: dtype is never Dtype::bf17; did you mean Dtype::bf16?\n");
  CHECK(problems(choice("variant::stages == many")) ==
        "templates/some.cuh:1:1: stages is never many; it is a whole number from 1 to 4\n");
  CHECK(problems(choice("variant::stages == 0")).starts_with("templates/some.cuh:1:1: stages is never 0; "));
  CHECK(problems(choice("variant::stages == variant::Q_stages && variant::causal"))
            .starts_with("templates/some.cuh:1:1: stages is never variant::Q_stages && variant::causal; "));
  CHECK(problems(choice("variant::stages == variant::causal")) ==
        "templates/some.cuh:1:1: stages and causal are of different types; two constants of one type\n");
}

TEST_CASE("#if, #else and #endif belong together") {
  CHECK(problems("a\n#if variant::causal\n#ifdef A\n#endif\n") ==
        "templates/some.cuh:2:1: this #if has no #endif; an #endif behind its last line\n");
  CHECK(problems("#ifdef A\na\n") ==
        "templates/some.cuh:1:1: this #if has no #endif; an #endif behind its last line\n");
  CHECK(problems("a\n#endif\n") == "templates/some.cuh:2:1: #endif without an #if; an #if before it\n");
  CHECK(problems("#else\n") == "templates/some.cuh:1:1: #else without an #if; an #if before it\n");
  CHECK(problems("#if variant::causal\n#else\n#else\n#endif\n") ==
        "templates/some.cuh:3:1: #else behind the #else of line 1's #if; one #else, the last\n");
  CHECK(problems("#if variant::causal\n#elif variant::ping_pong\n#endif\n") ==
        "templates/some.cuh:2:1: the generator has no #elif; another #if inside an #else\n");
}

}  // namespace
