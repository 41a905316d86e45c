// The operand lists of wgmma: text that is read back as the compiler will read it.
#include <doctest/doctest.h>

#include <regex>
#include <string>
#include <vector>

#include "generator/wgmma.hpp"

namespace {

using namespace attune;

Variant variant_of(int B_c, int head_dim, Dtype dtype, int Q_columns_in_registers = 0) {
  Variant variant = families()[prefill_sm90].defaults;
  variant.B_c = B_c;
  variant.head_dim = head_dim;
  variant.dtype = static_cast<int>(dtype);
  variant.Q_columns_in_registers = Q_columns_in_registers;
  return variant;
}

/// One function as written.
struct Function {
  std::string signature;
  std::string instruction;            ///< of the asm statement, its string literals joined
  std::vector<std::string> operands;  ///< %0, %1, ...: the expression of each
};

std::vector<std::string> all_matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

std::vector<Function> functions_of(const std::string& text) {
  std::vector<Function> result;
  for (std::size_t at = text.find("template <"); at != std::string::npos; at = text.find("template <", at + 1)) {
    const std::string body = text.substr(at, text.find("\n}\n", at) - at);
    const std::size_t asm_begin = body.find("asm volatile(");
    const std::size_t outputs = body.find("\n      : ", asm_begin);
    const std::size_t inputs = body.find("\n      : ", outputs + 1);
    REQUIRE(inputs != std::string::npos);
    Function function{.signature = body.substr(0, body.find('{')), .instruction = {}, .operands = {}};
    for (const std::string& literal :
         all_matches(body.substr(asm_begin, outputs - asm_begin), std::regex("\"([^\"]*)\"")))
      function.instruction += literal;
    for (const std::string& tiles :
         all_matches(body.substr(outputs, inputs - outputs), std::regex(R"(ATTUNE_(TILES?\(\d+)\))"))) {
      const int registers = tiles.starts_with("TILES") ? 16 : 4;
      const int first = std::stoi(tiles.substr(tiles.find('(') + 1));
      for (int i = 0; i < registers; ++i)
        function.operands.push_back("D[" + std::to_string(first + i / 4) + "][" + std::to_string(i % 4) + "]");
    }
    for (const std::string& input : all_matches(body.substr(inputs), std::regex(R"re("[rln]"\(([^,]*)\)(?:,|\)))re")))
      function.operands.push_back(input);
    result.push_back(function);
  }
  return result;
}

/// The instruction with each %number as the operand that it names.
std::string resolved(const Function& function) {
  std::string text;
  for (std::size_t i = 0; i < function.instruction.size(); ++i) {
    if (function.instruction[i] != '%') {
      text += function.instruction[i];
      continue;
    }
    std::size_t digits = 0;
    const auto number = static_cast<std::size_t>(std::stoi(function.instruction.substr(i + 1), &digits));
    REQUIRE(number < function.operands.size());
    text += function.operands[number];
    i += digits;
  }
  return text;
}

/// What stands for `n` columns, with this text for A and of its layout.
std::string expected(int n, const std::string& type, const std::string& A, const std::string& majors) {
  std::string D;
  for (int i = 0; i < n / 2; ++i)
    D += (i > 0 ? ",D[" : "D[") + std::to_string(i / 4) + "][" + std::to_string(i % 4) + "]";
  return "{\\n.reg .pred p;\\nsetp.ne.b32 p, int{accumulate}, 0;\\n"
         "wgmma.mma_async.sync.aligned.m64n" +
         std::to_string(n) + "k16.f32." + type + "." + type + " {" + D + "}," + A + ",B,p,1,1," + majors + ";\\n}";
}

std::string signature(int n, const std::string& A) {
  return "void wgmma(float (&D)[" + std::to_string(n / 8) + "][4], " + A + ", u64 B, bool accumulate)";
}

TEST_CASE("wgmma's operands are numbered as they are listed, for every n and both types") {
  const std::string B_major = "int{B_transposed}";
  const std::string words = "const u32 (&A)[4]";
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const std::string type = dtype == Dtype::bf16 ? "bf16" : "f16";
    for (int n = 16; n <= 256; n += 16) {
      CAPTURE(n);
      CAPTURE(type);
      const int other = 272 - n;
      const std::vector<Function> functions = functions_of(wgmma_text(variant_of(n, other, dtype)));
      REQUIRE(functions.size() == 2);
      CHECK(functions[0].signature.find(signature(n, "u64 A")) != std::string::npos);
      CHECK(functions[1].signature.find(signature(other, words)) != std::string::npos);
      CHECK(functions[0].operands.size() == static_cast<std::size_t>(n / 2 + 4));
      CHECK(functions[1].operands.size() == static_cast<std::size_t>(other / 2 + 7));
      CHECK(resolved(functions[0]) == expected(n, type, "A", "0," + B_major));
      CHECK(resolved(functions[1]) == expected(other, type, "{A[0],A[1],A[2],A[3]}", B_major));
      const std::vector<Function> of_registers = functions_of(wgmma_text(variant_of(n, other, dtype, other)));
      REQUIRE(of_registers.size() == 2);
      CHECK(of_registers[0].signature.find(signature(n, words)) != std::string::npos);
      CHECK(resolved(of_registers[0]) == expected(n, type, "{A[0],A[1],A[2],A[3]}", B_major));
      CHECK(resolved(of_registers[1]) == resolved(functions[1]));
      if (other == 16) continue;
      const std::vector<Function> of_both = functions_of(wgmma_text(variant_of(n, other, dtype, 16)));
      REQUIRE(of_both.size() == 3);
      CHECK(resolved(of_both[0]) == resolved(functions[0]));
      CHECK(resolved(of_both[1]) == resolved(of_registers[0]));
      CHECK(resolved(of_both[2]) == resolved(functions[1]));
    }
  }
}

TEST_CASE("products that differ in nothing but B's order share a function") {
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 0))).size() == 2);
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 64))).size() == 2);
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 128))).size() == 1);
}

TEST_CASE("the functions of wgmma are for the variant's type only, and no line is too long") {
  const std::string text = wgmma_text(variant_of(256, 256, Dtype::fp16));
  CHECK(all_matches(text, std::regex(R"((\.f32\.f16\.f16))")).size() == 2);
  CHECK(text.find("bf16") == std::string::npos);
  for (const std::string& line : all_matches(text, std::regex("([^\n]+)\n"))) {
    CAPTURE(line);
    CHECK(line.size() <= 120);
  }
}

}  // namespace
