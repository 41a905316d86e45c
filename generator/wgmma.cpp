#include "generator/wgmma.hpp"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "generator/constant.hpp"

namespace attune {
namespace {

constexpr int tile_columns = 8;
constexpr int tile_registers = 4;  // of a lane
constexpr std::size_t line_width = 120;
constexpr int tiles_per_macro = 4;

constexpr std::string_view head =
    R"(// The products of the variant, S and O: D = A * B or D += A * B. D is 64 x n floats; for each eight columns a lane has
// two neighbours of row 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a quarter of the lane). A,
// 64 x 16, is in registers as mma.sync's fragments or, as B, 16 x n, in shared memory at a descriptor, where the inner
// dimension is contiguous ("K-major"), of a transposed B the other. Until wgmma_wait both are read, and D is written.
#pragma once

#include "types.h"

#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILES(i) ATTUNE_TILE(i), ATTUNE_TILE(i + 1), ATTUNE_TILE(i + 2), ATTUNE_TILE(i + 3)
)";

/// A, as a function takes it.
struct OperandA {
  std::string_view parameter;
  std::vector<std::string> inputs;  ///< of the asm statement
  std::string_view major;           ///< of its place in shared memory
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

/// `%first, %first+1, ...`
std::vector<std::string> numbers(int first, int count) {
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i) result.push_back(fmt::format("%{}", first + i));
  return result;
}

std::string function(int n, const Variant& variant, const OperandA& A) {
  const int registers = n / tile_columns * tile_registers;
  const int inputs = static_cast<int>(A.inputs.size());
  const std::string type = variant.dtype == static_cast<int>(Dtype::bf16) ? "bf16" : "f16";
  std::vector<std::string> operands = numbers(0, registers);
  operands.front() =
      fmt::format("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\nwgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}",
                  registers + inputs + 1, n, type, type, operands.front());
  operands.back() += "}";
  std::vector<std::string> A_words = numbers(registers, inputs);
  if (inputs > 1) {
    A_words.front() = "{" + A_words.front();
    A_words.back() += "}";
  }
  const std::string B = fmt::format("%{}", registers + inputs);
  operands.insert(operands.end(), A_words.begin(), A_words.end());
  operands.insert(operands.end(), {B, "p", "1", "1"});
  if (!A.major.empty()) operands.emplace_back(A.major);
  operands.push_back(fmt::format("%{};\\n}}", registers + inputs + 2));
  std::vector<std::string> tiles;
  const int columns = n / tile_columns;
  const int in_macros = columns / tiles_per_macro * tiles_per_macro;
  for (int i = 0; i < in_macros; i += tiles_per_macro) tiles.push_back(fmt::format("ATTUNE_TILES({})", i));
  for (int i = in_macros; i < columns; ++i) tiles.push_back(fmt::format("ATTUNE_TILE({})", i));
  return fmt::format(
      R"(
template <Dtype dtype, bool B_transposed>
__device__ __forceinline__ void wgmma(float (&D)[{columns}][4], {parameter}, u64 B, bool accumulate) {{
  asm volatile(
      "{operands}"
      : {tiles}
      : {inputs}, "l"(B), "r"(int{{accumulate}}), "n"(int{{B_transposed}}));
}}
)",
      fmt::arg("columns", columns), fmt::arg("parameter", A.parameter),
      fmt::arg("dtype", constant_value(*find_field("dtype"), variant.dtype)),
      fmt::arg("operands", in_lines(operands, ",", ",\"\n      \"")),
      fmt::arg("tiles", in_lines(tiles, ", ", ",\n        ")), fmt::arg("inputs", fmt::join(A.inputs, ", ")));
}

}  // namespace

std::string wgmma_text(const Variant& variant) {
  const OperandA in_shared_memory{.parameter = "u64 A", .inputs = {"\"l\"(A)"}, .major = "0"};
  const OperandA in_registers{.parameter = "const u32 (&A)[4]",
                              .inputs = {"\"r\"(A[0])", "\"r\"(A[1])", "\"r\"(A[2])", "\"r\"(A[3])"},
                              .major = ""};
  std::string text{head};
  if (variant.Q_columns_in_registers < variant.head_dim) text += function(variant.B_c, variant, in_shared_memory);
  if (variant.Q_columns_in_registers > 0 && variant.B_c != variant.head_dim_of_v()) {
    text += function(variant.B_c, variant, in_registers);
  }
  return text + function(variant.head_dim_of_v(), variant, in_registers);
}

}  // namespace attune
