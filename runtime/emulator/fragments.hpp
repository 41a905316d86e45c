// The data movement and arithmetic of warp-wide matrix instructions (PTX ISA, "ldmatrix", "stmatrix",
// "mma.sync.m16n8k16").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "generator/variant.hpp"

namespace attune::emulator {

constexpr unsigned warp_size = 32;

/// A value for each lane of a warp.
template <class T>
using Lanes = std::array<T, warp_size>;

/// `rows[i]` is where row i % 8 of matrix i / 8 lies; `words[i]` is what lane i gets.
void ldmatrix(const Lanes<const std::byte*>& rows, bool transposed, const Lanes<std::uint32_t*>& words);

/// The same the other way: `words[i]` is what lane i brings.
void stmatrix(const Lanes<std::byte*>& rows, const Lanes<const std::uint32_t*>& words);

/// One lane's part of an mma.
struct MmaOperands {
  float (*d)[4];
  const std::uint32_t (*a)[4];
  std::uint32_t b[2];
};

/// d += a b. Products are exact; sums are rounded to fp32.
void mma(Dtype dtype, const Lanes<const MmaOperands*>& lanes);

/// So many elements of storage type as fp32; `from` may be unaligned.
void to_floats(Dtype dtype, const void* from, unsigned count, float* to);

}  // namespace attune::emulator
