// A tensor as tensor maps describe it to the copy engine of compute capability 9.0.
#pragma once

#include <array>
#include <cstdint>

#include "generator/variant.hpp"
#include "templates/tensor_params.h"

namespace attune {

/// What cuTensorMapEncodeTiled is told of one tensor of 16-bit elements, swizzled by 128 bytes; elements beyond the
/// tensor read as zeros. Innermost dimension first: head_dim, seqlen, heads, batch, or as pack() and spread() have
/// them. The copy engine may read at `base` whatever a box's coordinates are, so `base` is always the tensor's own.
struct TensorDescription {
  const void* base = nullptr;
  Dtype dtype = Dtype::bf16;
  unsigned rank = 4;                                    ///< dimensions; others have an extent of 1
  std::array<std::uint64_t, 5> extents{1, 1, 1, 1, 1};  ///< elements
  std::array<std::uint64_t, 4> strides{};               ///< bytes, of all dimensions but the first
  std::array<std::uint32_t, 5> box{1, 1, 1, 1, 1};      ///< elements that one copy moves

  bool operator==(const TensorDescription&) const = default;
};

}  // namespace attune
