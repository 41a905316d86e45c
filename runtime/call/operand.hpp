// What a call's memory is: each operation lists its operands once, and the checks of arguments, the emulator's bounds
// and tests follow from the list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "generator/variant.hpp"
#include "runtime/base/function_ref.hpp"

namespace attune {

/// A tensor's own extents, in the order of its strides, and its elements.
struct Extents {
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_dim;
  Dtype dtype;

  [[nodiscard]] bool empty() const { return batch == 0 || seq == 0; }
};

/// write: what was there before is not read; add: it is added to, and nothing else.
enum class Access { read, write, update, add };

/// A tensor, whose strides are the caller's, or a contiguous array.
struct Operand {
  enum class Kind { tensor, array };

  const char* name;
  Kind kind;
  Access access;
  int element_bytes;
  int alignment;  ///< bytes
  const void* data;
  std::array<std::int64_t, 4> extents;  ///< the last is contiguous
  std::array<std::int64_t, 3> strides;  ///< elements, of all extents but the last
  const char* needed = nullptr;         ///< of an array that must not be null: where not, for a message
};

using VisitOperand = FunctionRef<void(const Operand&)>;

/// Visits what a launch may touch.
using Operands = FunctionRef<void(VisitOperand)>;

/// What one copy instruction of a kernel moves: tensors and workspaces begin at a multiple of it.
inline constexpr int vector_bytes = 16;

/// batch x seq x heads x head_dim
inline Operand tensor_operand(const char* name, const attune_tensor& tensor, const Extents& extents, Access access) {
  return {.name = name,
          .kind = Operand::Kind::tensor,
          .access = access,
          .element_bytes = bytes_of(extents.dtype),
          .alignment = vector_bytes,
          .data = tensor.data,
          .extents = {extents.batch, extents.seq, extents.heads, extents.head_dim},
          .strides = {tensor.stride_batch, tensor.stride_seq, tensor.stride_head}};
}

/// Of these bytes each.
inline Operand array_operand(const char* name, const void* data, int element_bytes, int alignment,
                             const std::array<std::int64_t, 4>& extents, Access access) {
  return {.name = name,
          .kind = Operand::Kind::array,
          .access = access,
          .element_bytes = element_bytes,
          .alignment = alignment,
          .data = data,
          .extents = extents,
          .strides = {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3]}};
}

template <class Element>
Operand array_operand(const char* name, const Element* data, const std::array<std::int64_t, 4>& extents,
                      Access access = Access::read) {
  return array_operand(name, data, sizeof(Element), alignof(Element), extents, access);
}

/// Of sequences: a number of each, or where each begins and the last ends.
inline Operand lengths_operand(const char* name, const std::int32_t* array, std::int64_t entries) {
  return array_operand(name, array, {1, 1, 1, entries});
}

/// Cosines or sines of a rotation, rotations x rotary_dim / 2, which have to be there.
inline Operand angles_operand(const char* name, const void* data, Dtype dtype, int rotations, int rotary_dim) {
  Operand angles =
      array_operand(name, data, bytes_of(dtype), vector_bytes, {1, 1, rotations, rotary_dim / 2}, Access::read);
  angles.needed = " where keys are rotated";
  return angles;
}

/// Adds a line for each mistake: a pointer, strides, offsets that overflow. A tensor without elements is neither read
/// nor written, and may be anything.
void check_operand(std::vector<std::string>& found, const Operand& operand);

/// The same for memory of unknown extents.
void check_alignment(std::vector<std::string>& found, const char* name, const void* pointer, std::size_t bytes);

}  // namespace attune
