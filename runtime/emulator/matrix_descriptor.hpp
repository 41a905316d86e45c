// Where a wgmma's operand lies in shared memory (PTX ISA, "Matrix Descriptor Format", "Shared Memory Matrix Layout").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attune::emulator {

/// Which dimension's elements are consecutive: k, over which the product sums, or the other one.
enum class Major { k, mn };

constexpr unsigned product_depth = 16;  ///< k of one wgmma of 16-bit elements

/// Why the 64 bits do not describe an operand with so many rows of A or columns of B, or nothing: a swizzle other than
/// that of 128 bytes, bits without a meaning, a start away from where the swizzle's pattern starts, a stride that
/// leaves it.
std::optional<std::string> descriptor_problem(std::uint64_t bits, Major major, unsigned extent);

/// The addresses of the operand's 16-byte chunks, swizzle included: for Major::k two for each of `extent` rows, for
/// Major::mn extent / 8 for each of 16 k. The descriptor has no problem.
std::vector<unsigned> chunk_addresses(std::uint64_t bits, Major major, unsigned extent);

}  // namespace attune::emulator
