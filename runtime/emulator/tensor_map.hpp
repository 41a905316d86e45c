// Tensor maps as the emulator's copy engine reads them: what cuTensorMapEncodeTiled describes to a GPU's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "templates/tensor_params.h"

namespace attune::emulator {

/// A tensor of 16-bit elements and the boxes that are copied of it, swizzled by 128 bytes; elements beyond the tensor
/// read as zeros. Innermost dimension first; one that a map of fewer dimensions lacks has an extent of 1. Addresses
/// wrap around at 2^64.
struct TensorMap {
  const void* base = nullptr;
  unsigned rank = 4;                                    ///< dimensions: up to 5
  std::array<std::uint64_t, 5> extents{1, 1, 1, 1, 1};  ///< elements
  std::array<std::uint64_t, 4> strides{};               ///< bytes, of all dimensions but the first
  std::array<std::uint32_t, 5> box{1, 1, 1, 1, 1};      ///< elements

  static constexpr unsigned element_bytes = 2;

  [[nodiscard]] unsigned row_bytes() const { return box[0] * element_bytes; }
  [[nodiscard]] unsigned rows() const { return box[1] * box[2] * box[3] * box[4]; }
  [[nodiscard]] unsigned box_bytes() const { return row_bytes() * rows(); }
};

/// The map as a kernel parameter. Throws Error{ATTUNE_INTERNAL_ERROR} for what the driver would refuse: a base or a
/// stride that is no multiple of 16 bytes, an extent outside 1 to 2^32, a stride of 2^40 bytes or more, a box outside 1
/// to 256, a row of a box that is not a multiple of 16 bytes or longer than the swizzle's 128.
AttuneTensorMap emulated_map(const TensorMap& map);

/// What emulated_map() wrote; nothing where these bytes are something else. `opaque` may be unaligned.
std::optional<TensorMap> read_map(const void* opaque);

/// Where the 128-byte swizzle puts the byte that lies at this shared address without it: the 16-byte chunks of each 128
/// bytes change places with the row among eight (PTX ISA, "Swizzle Modes").
constexpr unsigned swizzle_128(unsigned address) { return address ^ (address >> 7 & 7) << 4; }
constexpr unsigned chunk_bytes = 16;  ///< moved as one by the swizzle

/// The swizzle repeats after so many bytes, and has to start at a multiple of them.
constexpr unsigned swizzle_atom = 1024;

}  // namespace attune::emulator
