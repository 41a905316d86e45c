#include "generator/wgmma.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "generator/condition.hpp"
#include "generator/constant.hpp"

namespace attune {
namespace {

constexpr int tile_columns = 8;
constexpr int tile_registers = 4;  // of a lane
constexpr int numbers_per_macro = 10;
constexpr int k_of_a_step = 16;
constexpr int A_registers = 4;  // of a step
constexpr std::size_t line_width = 120;

constexpr std::string_view head =
    R"(// The products of the variant, S and O, all steps in one statement: D = A * B or D += A * B, D 64 x n floats. For each
// eight columns a lane has two neighbours of row 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a
// quarter of the lane). A, 64 x 16 a step, is in registers as mma.sync's fragments ("RS") or, as B, 16 x n, in shared
// memory at a descriptor ("SS") to which steps add A_step and B_step: there the inner dimension is contiguous ("K-
// major"), of a transposed B the other. Until wgmma_wait A and B are read, and D is written.
#pragma once

#include "types.h"

#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILE4(i) ATTUNE_TILE(i), ATTUNE_TILE(i + 1), ATTUNE_TILE(i + 2), ATTUNE_TILE(i + 3)
#define ATTUNE_RS(k) "r"(A[k][0]), "r"(A[k][1]), "r"(A[k][2]), "r"(A[k][3]), "n"(B_step(k))
#define ATTUNE_RS4(k) ATTUNE_RS(k), ATTUNE_RS(k + 1), ATTUNE_RS(k + 2), ATTUNE_RS(k + 3)
#define ATTUNE_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
)";

/// For those whose A is in shared memory.
constexpr std::string_view SS_head =
    R"(#define ATTUNE_SS(k) "n"(A_step(first_step + k)), "n"(B_step(first_step + k))
#define ATTUNE_SS4(k) ATTUNE_SS(k), ATTUNE_SS(k + 1), ATTUNE_SS(k + 2), ATTUNE_SS(k + 3)
)";

/// For those whose A is transposed there.
constexpr std::string_view TS_note = "// Of A transposed (\"TS\") the rows are contiguous.\n";

/// One function: D has `n` columns.
struct Product {
  int n;
  int steps;
  bool A_in_registers;
  bool A_transposed = false;  ///< its rows are contiguous, not the inner dimension

  int registers() const { return n / tile_columns * tile_registers; }  ///< of D, a lane's
  // Numbers of the operands after those of D; A has one of its own where it is a descriptor.
  int accumulate() const { return registers(); }
  int B_transposed() const { return registers() + 1; }
  int B() const { return registers() + 2; }
  int A() const { return registers() + 3; }
  int first_step() const { return registers() + (A_in_registers ? 3 : 4); }
  std::string_view places() const { return A_in_registers ? "RS" : A_transposed ? "TS" : "SS"; }
  bool operator==(const Product&) const = default;
};

/// Pieces in lines: between two of a line stands `separator`, between two lines `line_break`, whose end begins the
/// next.
std::string in_lines(const std::vector<std::string>& pieces, std::string_view separator, std::string_view line_break) {
  const std::size_t end = line_break.find('\n');
  const std::size_t indent = line_break.size() - end - 1;
  std::string text;
  std::size_t column = indent;
  for (const std::string& piece : pieces) {
    if (column + piece.size() + end > line_width) {
      text += line_break;
      column = indent;
    } else if (!text.empty()) {
      text += separator;
    }
    text += piece;
    column += piece.size() + separator.size();
  }
  return text;
}

/// `%first,%first+1,...`
std::string numbers(int first, int count, std::string_view prefix = "%") {
  std::vector<std::string> found;
  for (int i = 0; i < count; ++i) found.push_back(fmt::format("{}{}", prefix, first + i));
  return fmt::to_string(fmt::join(found, ","));
}

/// The macro's operands from 0 to `count`, four at a time by the macro whose name ends in 4.
std::vector<std::string> in_fours(std::string_view macro, int count) {
  std::vector<std::string> found;
  int i = 0;
  for (; i + 4 <= count; i += 4) found.push_back(fmt::format("ATTUNE_{}4({})", macro, i));
  for (; i < count; ++i) found.push_back(fmt::format("ATTUNE_{}({})", macro, i));
  return found;
}

/// The instruction of a step, as a macro of whether it adds to D and of the numbers of A and B.
std::string step_macro(const Product& product, Dtype dtype) {
  const int registers = product.registers();
  const int tens = (registers - 1) / numbers_per_macro;  // after them there is at least one
  const std::string_view type = dtype == Dtype::bf16 ? "bf16" : "f16";
  std::vector<std::string> pieces{
      fmt::format("\"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{\"", product.n, type, type)};
  for (int t = 0; t < tens; ++t) pieces.push_back(fmt::format("ATTUNE_TEN({})", t == 0 ? "" : fmt::to_string(t)));
  const int numbered = tens * numbers_per_macro;
  pieces.push_back(fmt::format("\"{}}},\"", numbers(numbered, registers - numbered)));
  pieces.emplace_back(product.A_in_registers ? R"("{%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "},b," #add ",1,1,)"
                      : product.A_transposed ? R"("a,b," #add ",1,1,1,)"
                                             : R"("a,b," #add ",1,1,0,)");
  pieces.back() += fmt::format("%{};\\n\"", product.B_transposed());
  return fmt::format("#define ATTUNE_{}_{}(add, {}, b) \"{}add.s64 b, %{}, %\" #b \";\\n\" \\\n  {}\n",
                     product.places(), product.n, product.A_in_registers ? "a0, a1, a2, a3" : "a",
                     product.A_in_registers ? "" : fmt::format("add.s64 a, %{}, %\" #a \";\\n", product.A()),
                     product.B(), in_lines(pieces, " ", " \\\n  "));
}

/// The function of the product, its steps by that macro.
std::string function(const Product& product) {
  int operand = product.first_step();
  const int operands_of_a_step = product.A_in_registers ? A_registers + 1 : 2;
  std::vector<std::string> steps;
  std::vector<std::string> inputs{"\"r\"(+accumulate)", "\"n\"(+B_transposed)", "\"l\"(B)"};
  if (!product.A_in_registers) inputs.emplace_back("\"l\"(A)");
  for (int k = 0; k < product.steps; ++k, operand += operands_of_a_step) {
    steps.push_back(fmt::format("ATTUNE_{}_{}({},{})", product.places(), product.n, k == 0 ? "p" : "q",
                                numbers(operand, operands_of_a_step, "")));
  }
  const std::string_view inputs_macro = product.A_in_registers ? "RS" : "SS";
  for (std::string& step : in_fours(inputs_macro, product.steps)) inputs.push_back(std::move(step));
  const int columns = product.n / tile_columns;
  const std::vector<std::string> tiles = in_fours("TILE", columns);
  return fmt::format(
      R"(template <Dtype dtype, bool B_transposed, auto B_step{A_step}>
__device__ __forceinline__ void {name}(float (&D)[{columns}][4], {A}, u64 B, bool accumulate) {{
{check}  asm volatile("{{\n.reg .pred p, q;\n.reg .b64 {places};\nsetp.ne.b32 p, %{accumulate}, 0;\nsetp.eq.b32 q, 0, 0;\n"
      {steps} "}}"
      : {tiles}
      : {inputs});
}}
)",
      fmt::arg("A_step", product.A_in_registers ? "" : ", auto A_step, int first_step, int steps"),
      fmt::arg("name", product.A_transposed ? "wgmma_transposed" : "wgmma"), fmt::arg("columns", columns),
      fmt::arg("A", product.A_in_registers ? fmt::format("const u32 (&A)[{}][4]", product.steps) : "u64 A"),
      fmt::arg("check", product.A_in_registers ? "" : fmt::format("  static_assert(steps == {});\n", product.steps)),
      fmt::arg("places", product.A_in_registers ? "b" : "a, b"), fmt::arg("accumulate", product.accumulate()),
      fmt::arg("steps", in_lines(steps, " ", "\n      ")), fmt::arg("tiles", in_lines(tiles, ", ", ",\n        ")),
      fmt::arg("inputs", in_lines(inputs, ", ", ",\n        ")));
}

/// Adds what is not there.
void add(std::vector<Product>& products, const Product& product) {
  const bool known = std::ranges::find(products, product) != products.end();
  if (product.steps > 0 && !known) products.push_back(product);
}

/// S and O; those of a sequence's first keys, too, where they have products of their own.
void add_prefill(std::vector<Product>& products, const Variant& variant, bool first_keys_apart) {
  const int in_registers = variant.Q_columns_in_registers / k_of_a_step;
  const int in_shared_memory = variant.head_dim / k_of_a_step - in_registers;
  add(products, {.n = variant.B_c, .steps = in_shared_memory, .A_in_registers = false});
  add(products, {.n = variant.B_c, .steps = in_registers, .A_in_registers = true});
  add(products, {.n = variant.head_dim_of_v(), .steps = variant.B_c / k_of_a_step, .A_in_registers = true});
  add(products, {.n = variant.head_dim_of_v(), .steps = variant.P_residual_keys / k_of_a_step, .A_in_registers = true});
  if (!first_keys_apart) return;
  add(products, {.n = k_of_a_step, .steps = in_shared_memory, .A_in_registers = false});
  add(products, {.n = k_of_a_step, .steps = in_registers, .A_in_registers = true});
  add(products, {.n = variant.head_dim_of_v(), .steps = 1, .A_in_registers = true});
}

/// S and dP, dV and dK, and dQ, of which two warpgroups have a part each. Where they share 64 keys, P and dS are in
/// shared memory, and each has half of the columns of S, dP, dV and dK.
void add_backward(std::vector<Product>& products, const Variant& variant) {
  constexpr int warpgroups = 2;
  constexpr int warpgroup_rows = 64;
  const bool shares_keys = variant.B_c == warpgroup_rows;
  const int sharers = shares_keys ? warpgroups : 1;
  add(products, {.n = variant.B_r / sharers, .steps = variant.head_dim / k_of_a_step, .A_in_registers = false});
  add(products, {.n = variant.head_dim / sharers, .steps = variant.B_r / k_of_a_step, .A_in_registers = !shares_keys});
  add(products, {.n = variant.head_dim * variant.B_r / (warpgroups * warpgroup_rows),
                 .steps = variant.B_c / k_of_a_step,
                 .A_in_registers = false,
                 .A_transposed = true});
}

std::string text_of(const std::vector<Product>& products, Dtype dtype) {
  std::string text{head};
  const auto has = [&](const auto& property) { return std::ranges::any_of(products, property); };
  if (has([](const Product& product) { return !product.A_in_registers; })) text += SS_head;
  if (has([](const Product& product) { return product.A_transposed; })) text += TS_note;
  std::vector<std::string> macros;
  for (const Product& product : products) {
    const std::string macro = step_macro(product, dtype);
    if (std::ranges::find(macros, macro) == macros.end()) text += macros.emplace_back(macro);
    text += function(product);
  }
  return text;
}

}  // namespace

std::string wgmma_text(const Variant& variant) {
  std::vector<Product> products;
  variant.family == backward_sm90 ? add_backward(products, variant)
                                  : add_prefill(products, variant, first_keys_apart(variant) > 0);
  return text_of(products, static_cast<Dtype>(variant.dtype));
}

std::string own_wgmma_text() {
  Variant prefill = families()[prefill_sm90].defaults;
  prefill.Q_columns_in_registers = 64;
  prefill.P_residual_keys = 16;
  std::vector<Product> products;
  add_prefill(products, prefill, true);
  add_backward(products, families()[backward_sm90].defaults);
  return "// clang-format off\n" + text_of(products, Dtype::bf16);
}

}  // namespace attune
