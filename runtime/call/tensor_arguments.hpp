// What the checks of every operation's arguments share: tensors, scales and other pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "generator/variant.hpp"
#include "templates/params.h"

namespace attune {

/// An argument's own extents, in the order of its strides, and its elements.
struct Extents {
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_dim;
  Dtype dtype;

  [[nodiscard]] bool empty() const { return batch == 0 || seq == 0; }
};

enum class Access { read, write };

/// Adds a line for each mistake in a tensor: its pointer, its strides, offsets that overflow. A tensor without elements
/// is neither read nor written, and may be anything.
void check_tensor(std::vector<std::string>& found, const char* name, const attune_tensor& tensor,
                  const Extents& extents, Access access);

/// Adds a line where the pointer is no multiple of so many bytes.
void check_alignment(std::vector<std::string>& found, const char* name, const void* pointer, std::size_t bytes);

/// Adds a line where a cache's pages are not named: a table is needed but where sequence i has page i.
void check_table(std::vector<std::string>& found, const std::int32_t* block_table, int batch, int pages,
                 int table_width);

/// Adds a line where the cosines or sines of a rotation are not there, or not where kernels can read them.
void check_angles(std::vector<std::string>& found, const char* name, const void* angles);

void check_softmax_scale(std::vector<std::string>& found, float softmax_scale);

/// Throws Error{ATTUNE_INVALID_ARGUMENT} where a caller's arguments are smaller than what the library reads of them.
void check_struct_size(const char* type, std::size_t given, std::size_t needed);

/// Throws Error{ATTUNE_INVALID_ARGUMENT} with these lines, if there are any.
void throw_if_any(const std::vector<std::string>& found);

/// The factors of scores that kernels take.
struct ScoreScales {
  float scale_log2;
  float cap_scale;  ///< 0 without a softcap
};
ScoreScales scales_of(float softmax_scale, float softcap);

/// A checked tensor as kernels take it: a dimension of one element may come with any stride, and 0 keeps every address
/// that a kernel forms an aligned one.
AttuneTensor kernel_tensor(const attune_tensor& tensor, const Extents& extents);

}  // namespace attune
