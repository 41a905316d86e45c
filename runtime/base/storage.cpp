#include "runtime/base/storage.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attune {
namespace {

/// fp16 by hand: the compilers Attune is built with do not all have a 16-bit float type in C++.
std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;
  // Below 2^-14 the result is a multiple of 2^-24: scale it to an integer and let the addition of 1.5 * 2^23 round.
  if (magnitude < 0x38800000U) {
    const float rounded = std::bit_cast<float>(magnitude) * 0x1p24F + 0x1.8p23F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) & 0x7fffU);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  const std::uint32_t half = (rounded - (112U << 23)) >> 13;
  return sign | static_cast<std::uint16_t>(std::min<std::uint32_t>(half, 0x7c00U));
}

float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0) return (sign != 0 ? -0x1p-24F : 0x1p-24F) * static_cast<float>(fraction);
  const std::uint32_t wide_exponent = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

}  // namespace

std::uint16_t to_storage(Dtype dtype, float value) {
  if (dtype == Dtype::fp16) return to_fp16(value);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float from_storage(Dtype dtype, std::uint16_t bits) {
  if (dtype == Dtype::fp16) return from_fp16(bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

double storage_ulp(Dtype dtype, double magnitude) {
  const int fraction_bits = dtype == Dtype::bf16 ? 7 : 10;
  const int smallest_exponent = dtype == Dtype::bf16 ? -126 : -14;
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), smallest_exponent) : smallest_exponent;
  return std::ldexp(1.0, exponent - fraction_bits);
}

}  // namespace attune
