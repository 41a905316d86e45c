// Division of counts.
#pragma once

#include <bit>
#include <cstdint>

namespace attune {

/// The least whole number that is at least a / b, for a of 0 or more and b above 0.
constexpr long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

/// How kernels divide what is below 2^31 by a number that the host knows: n * multiplier >> shift, in 64 bits, is
/// exact.
struct Reciprocal {
  unsigned multiplier = 0;  ///< 2^shift / divisor, rounded up
  int shift = 0;
};

/// That of a divisor of 1 or more.
constexpr Reciprocal reciprocal_of(int divisor) {
  const auto value = static_cast<std::uint64_t>(divisor);
  const int shift = 31 + std::bit_width(value - 1);
  return {.multiplier = static_cast<unsigned>(((std::uint64_t{1} << shift) + value - 1) / value), .shift = shift};
}

}  // namespace attune
