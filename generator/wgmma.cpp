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
constexpr int tiles_per_macro = 2;

constexpr std::string_view head =
    R"(// The products of the variant, S and O: D = A * B, or D += A * B. D is 64 x n in float, of which a lane holds, for each
// eight columns, two neighbours of row 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a quarter
// of the lane index); A is 64 x 16 and B 16 x n. Operands in shared memory are given by descriptors, and are read, like
// the registers of A, until wgmma_wait says that the group is done; D may not be touched until then. They have the 16
// elements of the inner dimension side by side ("K-major"), B transposed the others ("MN-major").
#pragma once

#include "types.h"

#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILES(i) ATTUNE_TILE(i), ATTUNE_TILE(i + 1)
)";

/// A, as a function takes it.
struct OperandA {
  std::string_view place;
  std::string_view parameter;
  std::vector<std::string> inputs;  ///< of the asm statement
  std::string_view major;           ///< of its place in shared memory
};

/// Pieces in lines: between two of a line stands ", ", between two lines `line_break`, whose end begins the next line.
std::string in_lines(const std::vector<std::string>& pieces, std::string_view line_break) {
  const std::size_t end = line_break.find('\n');
  const std::size_t indent = line_break.size() - end - 1;
  std::string text;
  std::size_t column = indent;
  for (const std::string& piece : pieces) {
    if (column + piece.size() + end > line_width) {
      text += line_break;
      column = indent;
    } else if (!text.empty()) {
      text += ", ";
    }
    text += piece;
    column += piece.size() + 2;
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
  std::string A_text = fmt::format("{}", fmt::join(numbers(registers, inputs), ", "));
  if (inputs > 1) A_text = fmt::format("{{{}}}", A_text);
  std::vector<std::string> tiles;
  for (int i = 0; i < n / tile_columns; i += tiles_per_macro) tiles.push_back(fmt::format("ATTUNE_TILES({})", i));
  const std::string type = variant.dtype == static_cast<int>(Dtype::bf16) ? "bf16" : "f16";
  return fmt::format(
      R"(
// A in {place}.
template <Dtype dtype, bool B_transposed>
__device__ __forceinline__ void wgmma(float (&D)[{tiles}][4], {parameter}, u64 B, bool accumulate) {{
  static_assert(dtype == {dtype});
  asm volatile(
      "{{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %{accumulate}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{type}.{type} {{"
      "{D}"
      "}}, {A}, %{B}, accumulate, 1, 1, {A_major}%{B_major};\n}}"
      : {operands}
      : {inputs}, "l"(B), "r"(int{{accumulate}}), "n"(int{{B_transposed}}));
}}
)",
      fmt::arg("place", A.place), fmt::arg("tiles", n / tile_columns), fmt::arg("parameter", A.parameter),
      fmt::arg("dtype", constant_value(*find_field("dtype"), variant.dtype)), fmt::arg("type", type), fmt::arg("n", n),
      fmt::arg("D", in_lines(numbers(0, registers), ", \"\n      \"")), fmt::arg("A", A_text),
      fmt::arg("B", registers + inputs), fmt::arg("accumulate", registers + inputs + 1), fmt::arg("A_major", A.major),
      fmt::arg("B_major", registers + inputs + 2), fmt::arg("operands", in_lines(tiles, ",\n        ")),
      fmt::arg("inputs", fmt::join(A.inputs, ", ")));
}

}  // namespace

std::string wgmma_text(const Variant& variant) {
  const OperandA in_shared_memory{
      .place = "shared memory, K-major", .parameter = "u64 A", .inputs = {"\"l\"(A)"}, .major = "0, "};
  const OperandA in_registers{.place = "registers, as mma.sync's fragments are",
                              .parameter = "const u32 (&A)[4]",
                              .inputs = {"\"r\"(A[0])", "\"r\"(A[1])", "\"r\"(A[2])", "\"r\"(A[3])"},
                              .major = ""};
  const bool Q_in_registers = variant.Q_in_registers != 0;
  std::string text{head};
  if (!Q_in_registers) text += function(variant.B_c, variant, in_shared_memory);
  if (Q_in_registers && variant.B_c != variant.head_dim_of_v()) text += function(variant.B_c, variant, in_registers);
  return text + function(variant.head_dim_of_v(), variant, in_registers);
}

}  // namespace attune
