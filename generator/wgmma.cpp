#include "generator/wgmma.hpp"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "generator/constant.hpp"

namespace attune {
namespace {

constexpr int tile_columns = 8;
constexpr int tile_registers = 4;  // of a lane
constexpr std::size_t numbers_per_line = 16;
constexpr int tiles_per_macro = 2;
constexpr std::size_t macros_per_line = 6;

constexpr std::string_view head =
    R"(// The two products of the variant: D = A * B, or D += A * B. D is 64 x n in float, of which a lane holds, for each
// eight columns, two neighbours of row 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a quarter
// of the lane index); A is 64 x 16 and B 16 x n. Operands in shared memory are given by descriptors, and are read, like
// the registers of A, until wgmma_wait says that the group is done; D may not be touched until then.
#pragma once

#include "types.h"

#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILES(i) ATTUNE_TILE(i), ATTUNE_TILE(i + 1)
)";

/// A, as one of the two functions takes it.
struct OperandA {
  std::string_view comment;
  std::string_view parameter;
  std::vector<std::string> inputs;  ///< of the asm statement
  std::string_view majors;          ///< which of the operands in shared memory are "MN-major"
};

/// Pieces in lines of `per_line`: between two of a line stands ", ", between two lines `line_break`.
std::string in_lines(const std::vector<std::string>& pieces, std::size_t per_line, std::string_view line_break) {
  std::string text;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) text += i % per_line == 0 ? line_break : ", ";
    text += pieces[i];
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
// {comment}
template <Dtype dtype>
__device__ __forceinline__ void wgmma(float (&D)[{tiles}][4], {parameter}, u64 B, bool accumulate) {{
  static_assert(dtype == {dtype});
  asm volatile(
      "{{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %{accumulate}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{type}.{type} {{"
      "{D}"
      "}}, {A}, %{B}, accumulate, 1, 1, {majors};\n}}"
      : {operands}
      : {inputs}, "l"(B), "r"(static_cast<int>(accumulate)));
}}
)",
      fmt::arg("comment", A.comment), fmt::arg("tiles", n / tile_columns), fmt::arg("parameter", A.parameter),
      fmt::arg("dtype", constant_value(*find_field("dtype"), variant.dtype)), fmt::arg("type", type), fmt::arg("n", n),
      fmt::arg("D", in_lines(numbers(0, registers), numbers_per_line, ", \"\n      \"")), fmt::arg("A", A_text),
      fmt::arg("B", registers + inputs), fmt::arg("accumulate", registers + inputs + 1), fmt::arg("majors", A.majors),
      fmt::arg("operands", in_lines(tiles, macros_per_line, ",\n        ")),
      fmt::arg("inputs", fmt::join(A.inputs, ", ")));
}

}  // namespace

std::string wgmma_text(const Variant& variant) {
  const OperandA in_shared_memory{
      .comment =
          "S: A and B in shared memory, both with 16 consecutive elements of the inner dimension in a row "
          "(\"K-major\").",
      .parameter = "u64 A",
      .inputs = {"\"l\"(A)"},
      .majors = "0, 0"};
  const OperandA in_registers{
      .comment =
          "O: A in registers, as mma.sync's fragments are; B in shared memory with its n columns in a row "
          "(\"MN-major\").",
      .parameter = "const u32 (&A)[4]",
      .inputs = {"\"r\"(A[0])", "\"r\"(A[1])", "\"r\"(A[2])", "\"r\"(A[3])"},
      .majors = "1"};
  return std::string{head} + function(variant.B_c, variant, in_shared_memory) +
         function(variant.head_dim_of_v(), variant, in_registers);
}

}  // namespace attune
