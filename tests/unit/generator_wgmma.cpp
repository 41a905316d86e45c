// The operand lists of wgmma: text that is read back as the compiler will read it.
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "generator/wgmma.hpp"

namespace {

using namespace attune;

Variant variant_of(int B_c, int head_dim, Dtype dtype, int Q_columns_in_registers = 0, int P_residual_keys = 0) {
  Variant variant = families()[prefill_sm90].defaults;
  variant.B_c = B_c;
  variant.head_dim = head_dim;
  variant.dtype = static_cast<int>(dtype);
  variant.Q_columns_in_registers = Q_columns_in_registers;
  variant.P_residual_keys = P_residual_keys;
  return variant;
}

/// One function as written.
struct Function {
  std::string signature;
  std::string text;                   ///< of the asm statement, macros expanded and string literals joined
  std::vector<std::string> operands;  ///< %0, %1, ...: the expression of each
};

std::vector<std::smatch> all_matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

/// The list between two commas or ends.
std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> found;
  const std::regex item("[^, ]+");
  for (const std::smatch& match : all_matches(list, item)) found.push_back(match[0]);
  return found;
}

/// Calls of the macro of a step, and then those of ATTUNE_TEN, become what they are defined as.
std::string expanded(const std::string& source, std::string text) {
  const std::regex call(R"(ATTUNE_([RS]S_\d+|TEN)\(([^)]*)\))");
  for (std::smatch match; std::regex_search(text, match, call);) {
    const std::string name = match[1];
    const std::string head = "#define ATTUNE_" + name + "(";
    const std::size_t at = source.find(head) + head.size();
    REQUIRE(at != std::string::npos + head.size());
    const std::size_t parameters_end = source.find(')', at);
    std::string body = source.substr(parameters_end + 1);
    body.resize(std::min(body.find("\ntemplate"), body.find("\n\n")));
    if (name == "TEN") body.resize(body.find('\n') == std::string::npos ? body.size() : body.find('\n'));
    const std::vector<std::string> parameters = items(source.substr(at, parameters_end - at));
    const std::vector<std::string> arguments = items(match[2]);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::string argument = i < arguments.size() ? arguments[i] : "";
      body = std::regex_replace(body, std::regex("#" + parameters[i] + "\\b"), "\"" + argument + "\"");
    }
    text = match.prefix().str() + body + match.suffix().str();
  }
  std::string joined;
  const std::regex literal("\"([^\"]*)\"");
  for (const std::smatch& match : all_matches(text, literal)) joined += match[1];
  return joined;
}

std::vector<std::string> outputs_of(const std::string& list) {
  std::vector<std::string> found;
  const std::regex tiles_pattern(R"(ATTUNE_TILE(4?)\((\d+)\))");
  for (const std::smatch& tiles : all_matches(list, tiles_pattern)) {
    const int first = std::stoi(tiles[2]);
    for (int i = 0; i < (tiles[1] == "4" ? 16 : 4); ++i)
      found.push_back("D[" + std::to_string(first + i / 4) + "][" + std::to_string(i % 4) + "]");
  }
  return found;
}

std::vector<std::string> inputs_of(const std::string& list) {
  std::vector<std::string> found;
  const std::regex input_pattern(R"re("[rln]"\(([^)]*)\)|ATTUNE_(RS|SS)(4?)\((\d+)\))re");
  for (const std::smatch& input : all_matches(list, input_pattern)) {
    if (input[1].matched) {
      found.push_back(input[1]);
      continue;
    }
    const int first = std::stoi(input[4]);
    for (int k = first; k < first + (input[3] == "4" ? 4 : 1); ++k) {
      const std::string step = std::to_string(k);
      if (input[2] == "RS") {
        for (int i = 0; i < 4; ++i) found.push_back("A[" + step + "][" + std::to_string(i) + "]");
        found.push_back("B_step(" + step + ")");
      } else {
        found.push_back("A_step(first_step + " + step + ")");
        found.push_back("B_step(first_step + " + step + ")");
      }
    }
  }
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
    Function function{.signature = body.substr(0, body.find('{')),
                      .text = expanded(text, body.substr(asm_begin, outputs - asm_begin)),
                      .operands = outputs_of(body.substr(outputs, inputs - outputs))};
    for (const std::string& input : inputs_of(body.substr(inputs))) function.operands.push_back(input);
    result.push_back(function);
  }
  return result;
}

/// The statement with each %number as the operand that it names.
std::string resolved(const Function& function) {
  std::string text;
  for (std::size_t i = 0; i < function.text.size(); ++i) {
    if (function.text[i] != '%') {
      text += function.text[i];
      continue;
    }
    std::size_t digits = 0;
    const auto number = static_cast<std::size_t>(std::stoi(function.text.substr(i + 1), &digits));
    REQUIRE(number < function.operands.size());
    text += function.operands[number];
    i += digits;
  }
  return text;
}

/// What stands for `n` columns and so many steps.
std::string expected(int n, int steps, const std::string& type, bool A_in_registers) {
  std::string D;
  for (int i = 0; i < n / 2; ++i)
    D += (i > 0 ? ",D[" : "D[") + std::to_string(i / 4) + "][" + std::to_string(i % 4) + "]";
  std::string text = std::string("{\\n.reg .pred p, q;\\n.reg .b64 ") + (A_in_registers ? "b" : "a, b") +
                     ";\\nsetp.ne.b32 p, +accumulate, 0;\\nsetp.eq.b32 q, 0, 0;\\n";
  for (int i = 0; i < steps; ++i) {
    const std::string k = std::to_string(i);
    const std::string words = "{A[" + k + "][0],A[" + k + "][1],A[" + k + "][2],A[" + k + "][3]}";
    text += A_in_registers
                ? "add.s64 b, B, B_step(" + k + ");\\n"
                : "add.s64 a, A, A_step(first_step + " + k + ");\\nadd.s64 b, B, B_step(first_step + " + k + ");\\n";
    text += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32." + type + "." + type + " {" + D + "}," +
            (A_in_registers ? words : "a") + ",b," + (i == 0 ? "p" : "q") + ",1,1," + (A_in_registers ? "" : "0,") +
            "+B_transposed;\\n";
  }
  return text + "}";
}

/// Whether the function is that one, by its parameters and its text.
void check_function(const Function& function, int n, int steps, const std::string& type, bool A_in_registers) {
  const std::string A = A_in_registers ? "const u32 (&A)[" + std::to_string(steps) + "][4]" : "u64 A";
  const std::string signature =
      "void wgmma(float (&D)[" + std::to_string(n / 8) + "][4], " + A + ", u64 B, bool accumulate)";
  CHECK(function.signature.find(signature) != std::string::npos);
  CHECK(function.operands.size() == static_cast<std::size_t>(n / 2 + (A_in_registers ? 3 + 5 * steps : 4 + 2 * steps)));
  CHECK(resolved(function) == expected(n, steps, type, A_in_registers));
}

TEST_CASE("wgmma's operands are numbered as they are listed, for every n and both types") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const std::string type = dtype == Dtype::bf16 ? "bf16" : "f16";
    for (int n = 16; n <= 256; n += 16) {
      CAPTURE(n);
      CAPTURE(type);
      const int other = 272 - n;
      const std::vector<Function> functions = functions_of(wgmma_text(variant_of(n, other, dtype)));
      REQUIRE(functions.size() == 2);
      check_function(functions[0], n, other / 16, type, false);
      check_function(functions[1], other, n / 16, type, true);
      const std::vector<Function> of_registers = functions_of(wgmma_text(variant_of(n, other, dtype, other)));
      REQUIRE(of_registers.size() == 2);
      check_function(of_registers[0], n, other / 16, type, true);
      check_function(of_registers[1], other, n / 16, type, true);
      if (other == 16) continue;
      const std::vector<Function> of_both = functions_of(wgmma_text(variant_of(n, other, dtype, 16)));
      REQUIRE(of_both.size() == 3);
      check_function(of_both[0], n, other / 16 - 1, type, false);
      check_function(of_both[1], n, 1, type, true);
      check_function(of_both[2], other, n / 16, type, true);
    }
  }
}

TEST_CASE("what rounding took from P has a function of its own steps") {
  const std::vector<Function> functions = functions_of(wgmma_text(variant_of(96, 192, Dtype::bf16, 0, 32)));
  REQUIRE(functions.size() == 3);
  check_function(functions[2], 192, 2, "bf16", true);
}

TEST_CASE("products that differ in nothing but B's order share a function") {
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 0))).size() == 2);
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 64))).size() == 3);
  CHECK(functions_of(wgmma_text(variant_of(128, 128, Dtype::bf16, 128))).size() == 1);
}

TEST_CASE("of the backward pass dQ's product has A transposed, in a function of its own name") {
  const std::string text = wgmma_text(families()[backward_sm90].defaults);
  const std::vector<Function> functions = functions_of(text);
  REQUIRE(functions.size() == 3);
  check_function(functions[0], 64, 8, "bf16", false);
  check_function(functions[1], 128, 4, "bf16", true);
  CHECK(functions[2].signature.find("void wgmma_transposed(float (&D)[8][4], u64 A, u64 B, bool accumulate)") !=
        std::string::npos);
  CHECK(all_matches(text, std::regex(R"re("a,b," #add ",1,1,1,%)re")).size() == 1);
}

TEST_CASE("warpgroups that share keys have half of the columns each, and no operand in registers") {
  Variant variant = families()[backward_sm90].defaults;
  variant.head_dim = 192;
  variant.B_c = 64;
  const std::vector<Function> functions = functions_of(wgmma_text(variant));
  REQUIRE(functions.size() == 3);
  check_function(functions[0], 32, 12, "bf16", false);
  check_function(functions[1], 96, 4, "bf16", false);
  CHECK(functions[2].signature.find("void wgmma_transposed(float (&D)[12][4], u64 A, u64 B, bool accumulate)") !=
        std::string::npos);
}

TEST_CASE("the functions of wgmma are for the variant's type only, and no line is too long") {
  const std::string text = wgmma_text(variant_of(256, 256, Dtype::fp16));
  CHECK(all_matches(text, std::regex(R"(\.f32\.f16\.f16)")).size() == 2);
  CHECK(text.find("bf16") == std::string::npos);
  const std::regex line_pattern("([^\n]+)\n");
  for (const std::smatch& line : all_matches(text, line_pattern)) {
    CAPTURE(line.str());
    CHECK(line.length(1) <= 120);
  }
}

}  // namespace
