// Numbers as tensors hold them.
#pragma once

#include <cstdint>

#include "generator/variant.hpp"

namespace attune {

/// Rounds to the nearest storage value, ties to even.
std::uint16_t to_storage(Dtype dtype, float value);
float from_storage(Dtype dtype, std::uint16_t bits);

/// The distance between neighbouring storage values at this magnitude.
double storage_ulp(Dtype dtype, double magnitude);

}  // namespace attune
