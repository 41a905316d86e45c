// What every operation's arguments share: enums, scales, tables of pages, and tensors as kernels take them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/call/operand.hpp"
#include "templates/params.h"

namespace attune {

/// The value of an enum of the C ABI, which a caller in C may have set to anything.
template <class Enum>
int raw(const Enum& value) {
  int result = 0;
  static_assert(sizeof(Enum) == sizeof(result));
  std::memcpy(&result, &value, sizeof(result));
  return result;
}

/// Adds a line where a cache's pages are not named: a table is needed but where sequence i has page i.
void check_table(std::vector<std::string>& found, const std::int32_t* block_table, int batch, int pages,
                 int table_width);

/// Adds a line where a flag is neither 0 nor 1.
void check_flag(std::vector<std::string>& found, const char* name, int flag);

void check_softmax_scale(std::vector<std::string>& found, float softmax_scale);

/// Adds a line where one of both says where sequences begin, and the other does not.
void check_both_starts(std::vector<std::string>& found, const std::int32_t* cu_seqlens_q,
                       const std::int32_t* cu_seqlens_k);

/// Adds a line where a call's workspace is missing or smaller than `needed`, which this function of the C ABI says.
void check_workspace(std::vector<std::string>& found, const void* workspace, std::size_t bytes, std::size_t needed,
                     const char* function);

/// A bound of a window as kernels take it: no more than hides nothing.
inline int bounded(int bound, int seqlen) { return bound < 0 ? seqlen : std::min(bound, seqlen); }

/// Throws Error{ATTUNE_INVALID_ARGUMENT} where a caller's arguments are smaller than what the library reads of them.
void check_struct_size(const char* type, std::size_t given, std::size_t needed);

/// Throws Error{ATTUNE_INVALID_ARGUMENT} with these lines, if there are any.
void throw_if_any(const std::vector<std::string>& found);

/// The factors of scores that kernels take.
struct ScoreScales {
  float scale_log2;
  float cap_scale;    ///< 0 without a softcap
  float score_scale;  ///< what makes scaled scores, as an expression has them, of those that the soft cap leaves
};

/// `expressed`: an expression says the score, which then is only brought to base 2.
ScoreScales scales_of(float softmax_scale, float softcap, bool expressed);

/// A checked tensor as kernels take it: a dimension of one element may come with any stride, and 0 keeps every address
/// that a kernel forms an aligned one.
AttuneTensor kernel_tensor(const attune_tensor& tensor, const Extents& extents);

}  // namespace attune
