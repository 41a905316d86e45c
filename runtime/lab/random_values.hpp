// Random numbers in a storage type, the same for the same seed on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// Fills memory with normally distributed values.
void draw_values(Dtype dtype, std::uint64_t seed, std::span<std::uint16_t> values);
std::vector<std::uint16_t> random_values(Dtype dtype, std::size_t count, std::uint64_t seed);

/// Cosines and sines of random angles.
struct Angles {
  std::vector<std::uint16_t> cos;
  std::vector<std::uint16_t> sin;
};
Angles random_angles(Dtype dtype, std::size_t count, std::uint64_t seed);

}  // namespace attune
