// Rotary position embedding on the CPU: what kernels are held to.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// Tables of rotations x rotary_dim / 2 in the storage type.
struct HostRotation {
  Dtype dtype = Dtype::bf16;
  Rotary rotary = Rotary::none;
  int rotary_dim = 0;
  int rotations = 0;
  const std::uint16_t* cos = nullptr;
  const std::uint16_t* sin = nullptr;
};

/// A row turned to this position, rounded once to fp32 and then to the storage type. To the bit what kernels make of
/// it, as products of two 16-bit numbers are exact in fp32.
std::vector<std::uint16_t> rotated_row(const HostRotation& rotation, std::vector<std::uint16_t> row,
                                       std::int64_t position);

}  // namespace attune
