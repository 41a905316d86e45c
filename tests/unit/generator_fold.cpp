// What the generator makes of a template's choices: what it decides, what it leaves, what it refuses where.
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

std::string folded(const std::string& text) {
  const TemplateFile file("some.cuh", text);
  const Result<std::string> result = fold(file, some_variant());
  for (const Diagnostic& problem : result.problems) FAIL_CHECK(problem.text());
  return result.value;
}

std::string problems(const std::string& text) {
  const TemplateFile file("some.cuh", text);
  std::string all;
  for (const Diagnostic& problem : fold(file, some_variant()).problems) all += problem.text() + "\n";
  return all;
}

std::string choice(const std::string& condition) {
  return "void f() {\n  if constexpr (" + condition + ") {\n    yes();\n  } else {\n    no();\n  }\n}\n";
}
const std::string yes = "void f() {\n  yes();\n}\n";
const std::string no = "void f() {\n  no();\n}\n";

TEST_CASE("of a choice by a knob the branch that is taken is left, without its braces") {
  CHECK(folded(choice("variant::ping_pong")) == yes);
  CHECK(folded(choice("variant::causal")) == no);
  CHECK(folded(choice("!variant::ping_pong")) == no);
  CHECK(folded("  if constexpr (variant::causal) {\n    a();\n  }\n  b();\n") == "  b();\n");
  CHECK(folded("  if constexpr (variant::ping_pong) a();\n  b();\n") == "  a();\n  b();\n");
  CHECK(folded("  if constexpr (variant::ping_pong) a();  // why\n  b();\n") == "  a();  // why\n  b();\n");
  CHECK(folded("  if constexpr (variant::causal) a();  // why\n  b();\n") == "  b();\n");
  CHECK(folded("  if constexpr (variant::ping_pong)\n    a();\n") == "  a();\n");
}

TEST_CASE("conditions are expressions of knobs, numbers and words") {
  for (const char* const condition :
       {"variant::stages == 2", "variant::stages != 3", "variant::dtype == Dtype::bf16", "variant::gqa_ratio == 0",
        "variant::stages < variant::head_dim", "variant::causal == false", "variant::causal || variant::ping_pong",
        "variant::ping_pong && !variant::causal", "variant::B_r / 64 + 1 == 3", "!(variant::causal && unknown)",
        "variant::ping_pong || unknown(1, 2)", "-variant::stages + 3 >= 1", "variant::B_r % 64 * 2 == 0"}) {
    CAPTURE(condition);
    CHECK(folded(choice(condition)) == yes);
  }
  for (const char* const condition :
       {"variant::stages == 3", "variant::dtype==Dtype::fp16", "unknown && variant::causal",
        "variant::causal && f(x).y", "1 + 2 * 3 == 9", "variant::stages <= 1"}) {
    CAPTURE(condition);
    CHECK(folded(choice(condition)) == no);
  }
}

TEST_CASE("a constant of the file's own decides as what it is defined as would") {
  const std::string file =
      "namespace variant {\nconstexpr int stages = 7;\n}\n#define A\nconstexpr int rows = 64;\n"
      "constexpr bool short_steps = variant::B_r == 2 * rows && !variant::causal;\n";
  CHECK(folded(file + choice("short_steps")) == file + yes);
  CHECK(folded(file + choice("!short_steps")) == file + no);
  CHECK(folded(file + choice("unknown && !short_steps")) == file + no);
  CHECK(folded(file + choice("rows > 64")) == file + no);
  CHECK(folded(file + "using A = Select<short_steps, B, C>;\n") == file + "using A = B;\n");
}

TEST_CASE("a name that may be another's than the file's constant decides nothing") {
  const std::string constant = "constexpr int rows = 64;\n";
  for (const std::string& file :
       {constant + "template <int rows>\n", "template <int rows>\nvoid g();\n" + constant,
        "template <int n>\n" + constant, std::string("struct X {\n  static constexpr int rows = 64;\n};\n"),
        std::string("constexpr int rows = sizeof(X);\n"), std::string("constexpr int rows = n == 1 ? 64 : 32;\n"),
        std::string("constexpr int rows = rows;\n")}) {
    CAPTURE(file);
    CHECK(folded(file + choice("rows == 64")) == file + choice("rows == 64"));
  }
  const std::string later = choice("rows == 64") + constant;
  CHECK(folded(later) == later);
}

TEST_CASE("what depends on something else stays, and choices inside it are made") {
  for (const char* const condition : {"unknown", "variant::ping_pong && unknown", "Other::bf16 == 1",
                                      "sizeof(int) == 4", "variant::stages / 0 == 1"}) {
    CAPTURE(condition);
    CHECK(folded(choice(condition)) == choice(condition));
  }
  CHECK(folded("  if constexpr (n == 1) {\n    if constexpr (variant::causal) a();\n    b();\n  }\n") ==
        "  if constexpr (n == 1) {\n    b();\n  }\n");
}

TEST_CASE("the first branch of a chain that is taken is left, or the chain from what is not decided on") {
  const auto chain = [](const std::string& first, const std::string& second) {
    return "  if constexpr (" + first + ") {\n    a();\n  } else if constexpr (" + second +
           ") {\n    b();\n  } else {\n    c();\n  }\n";
  };
  CHECK(folded(chain("variant::causal", "variant::ping_pong")) == "  b();\n");
  CHECK(folded(chain("variant::causal", "variant::window")) == "  c();\n");
  CHECK(folded(chain("variant::ping_pong", "n == 1")) == "  a();\n");
  CHECK(folded(chain("variant::causal", "n == 1")) ==
        "  if constexpr (n == 1) {\n    b();\n  } else {\n    c();\n  }\n");
}

TEST_CASE("branches of branches are made, with their comments and their lines for the compiler") {
  CHECK(folded("  if constexpr (variant::ping_pong) {  // why\n    // what\n    if constexpr (!variant::causal) {\n"
               "#pragma unroll\n      for (int i = 0; i < 2; ++i) {\n        a();\n      }\n    }\n    b();\n  }\n") ==
        "  // why\n  // what\n#pragma unroll\n  for (int i = 0; i < 2; ++i) {\n    a();\n  }\n  b();\n");
}

TEST_CASE("the comment right above a branch that goes, goes with it") {
  CHECK(folded("  a();\n  // Of the branch,\n  // two lines.\n  if constexpr (variant::causal) b();\n  c();\n") ==
        "  a();\n  c();\n");
  CHECK(folded("  // Of both.\n  if constexpr (variant::causal) {\n    b();\n  } else {\n    c();\n  }\n") ==
        "  // Of both.\n  c();\n");
}

TEST_CASE("a type that a knob selects is left alone, inside others and in several lines") {
  CHECK(folded("using A = Select<variant::causal, B<1, 2>, C>;\n") == "using A = C;\n");
  CHECK(folded("using A = Select<variant::ping_pong, B<1, (2 > 1)>, C>;\n") == "using A = B<1, (2 > 1)>;\n");
  CHECK(folded("using A = X<Select<variant::causal, B,\n    Select<variant::stages == 2, C, D>>, E>;\n") ==
        "using A = X<C, E>;\n");
  CHECK(folded("using A = Select<n == 1, B, C>;\n") == "using A = Select<n == 1, B, C>;\n");
}

TEST_CASE("local variables that only dropped branches used go, and those alone") {
  const auto body = [](const std::string& declaration) {
    return "void f() {\n" + declaration + "  if constexpr (variant::causal) use(x);\n  g(y);\n}\n";
  };
  const std::string bare = "void f() {\n  g(y);\n}\n";
  for (const char* const declaration :
       {"  int x = 1;\n", "  // Why.\n  const T<a, b>& x{c};\n", "  bool x;\n", "  u32 x[n / 2][4];  // what\n"}) {
    CAPTURE(declaration);
    CHECK(folded(body(declaration)) == bare);
  }
  CHECK(folded(body("  int a = x2;\n  int x = a;\n")) == bare);  // one after the other
  CHECK(folded(body("  x = h();\n")) != bare);
  CHECK(folded(body("  T x(h());\n")) != bare);  // which may do something
  CHECK(folded("struct S {\n  int x;\n  int z;\n};\n" + body("")) == "struct S {\n  int x;\n  int z;\n};\n" + bare);
  CHECK(
      folded("void f() {\n  const auto g = [&] {\n    int x = 1;\n  if constexpr (variant::causal) use(x);\n    h();\n"
             "  };\n  g();\n}\n") == "void f() {\n  const auto g = [&] {\n    h();\n  };\n  g();\n}\n");
  CHECK(folded("void f() {\n  int x = 1;\n}\n") == "void f() {\n  int x = 1;\n}\n");  // no choice was made
}

TEST_CASE("a choice begins its line") {
  CHECK(
      problems("void f() { if constexpr (variant::causal) a(); }\n") ==
      "templates/some.cuh:1:12: this `if constexpr` does not begin its line; a line of its own, so that its branch can "
      "take its place\n");
}

TEST_CASE("a word that a knob never is, is an error with the nearest one") {
  CHECK(problems(choice("variant::dtype == Dtype::bf61")) ==
        "templates/some.cuh:2:42: dtype is never Dtype::bf61; did you mean Dtype::bf16?\n");
}

TEST_CASE("comments are no choices, and text without one stays as it is") {
  const std::string text = "// if constexpr (variant::causal) {\n\"Select<variant::causal, A, B>\";\n";
  CHECK(folded(text) == text);
}

}  // namespace
