// Which of a template's declarations a kernel uses.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "generator/declarations.hpp"

namespace {

using namespace attune;

/// Of a file before it and a kernel, the file's lines that are used.
std::string used(const std::string& text, const std::string& kernel) {
  const std::string body = "extern \"C\" __global__ void __launch_bounds__(1, 2) k(int p) {\n" + kernel + "\n}\n";
  const TemplateFile before("before.cuh", text);
  const TemplateFile last("k.cu", body);
  const std::vector<const TemplateFile*> files{&before, &last};
  const std::vector<std::vector<bool>> lines = used_lines(files);
  std::string result;
  for (std::size_t i = 0; i < lines[0].size(); ++i) {
    if (lines[0][i]) result += std::string(before.lines()[i]) + "\n";
  }
  return result;
}

TEST_CASE("what the kernel uses stays, by way of others too, and the rest goes") {
  const std::string f = "template <int n>\n__device__ int f(int x) {\n  return x + n;\n}\n";
  const std::string g = "// Of g.\n__device__ int g() { return f<1>(constant); }\n";
  const std::string rest = "using T = int;\nenum class E { a, b };\nconstexpr int constant = 2;\n";
  CHECK(used(f + g + rest, "g();") == f + g + "constexpr int constant = 2;\n");
  CHECK(used(f + g + rest, "f<2>(0);") == f);
  CHECK(used(f + g + rest, "E e; T t;") == "using T = int;\nenum class E { a, b };\n");
  CHECK(used(f + g + rest, "").empty());
}

TEST_CASE("of a type the members that nothing uses go, but for data and constructors") {
  const std::string head =
      "// A type.\ntemplate <class T>\nstruct S : B<T> {\n  int data;  // which\n"
      "             // goes on\n  u32 own{data - 1};\n";
  const std::string constructor = "  explicit S(int x) : data{x}, own(2) {}\n";
  const std::string f = "  // Of f.\n  int f() const { return h(); }\n";
  const std::string constant = "  static constexpr int n = 3;  // of two\n                               // lines\n";
  const std::string labelled = " private:\n  int h() const { return 1; }\n";
  const std::string text = head + constructor + f + constant + labelled + "};\n";
  CHECK(used(text, "S s; s.f();") == head + constructor + f + labelled + "};\n");
  CHECK(used(text, "S<int>::n;") == head + constructor + constant + "};\n");
  CHECK(used(text, "s.f();").empty());
}

TEST_CASE("a member's use is no use of what has its name elsewhere") {
  CHECK(used("int parts() { return 1; }\n", "p.parts; p->parts(); p.template parts<1>();").empty());
  CHECK(used("int parts() { return 1; }\n", "S::parts();") == "int parts() { return 1; }\n");
}

TEST_CASE("declarations are told apart by their shape") {
  for (const std::string declaration :
       {"struct alignas(16) X { u32 word[4]; };", "struct X;", "enum { X = 1 << 30 };", "#define X(i) \"+f\"(D[i])",
        "[[maybe_unused]] constexpr int X = 1;", "constexpr auto X = [] { return 1; };", "class X : public Y {};",
        "__device__ constexpr int X(int a, int b) { return a == 0 ? b : a; }", "using X = A<(1 > 0), B>;",
        "template <int n>\nauto X() -> int {\n  return n;\n}", "int X[3] = {1, 2, 3};", "const int X{4};"}) {
    CAPTURE(declaration);
    CHECK(used(declaration + "\nint after() { return 2; }\n", "X;") == declaration + "\n");
    CHECK(used(declaration + "\nint after() { return 2; }\n", "after();") == "int after() { return 2; }\n");
  }
}

TEST_CASE("members of plain C stay, and a file's own comment with something of it") {
  const std::string text =
      "// The file.\n#pragma once\n\n// Of P.\nstruct P {\n  struct Q q;  // what\n  struct Q* r;\n};\n";
  CHECK(used(text, "P p;") == text);
  CHECK(used(text, "").empty());
}

}  // namespace
