#include "runtime/lab/dropout_mask.hpp"

#include <array>
#include <cstddef>

#include "runtime/call/dropout.hpp"

namespace attune {
namespace {

/// Philox 4x32 in 7 rounds (Salmon et al., SC11).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> x, std::uint64_t seed) {
  auto key = std::array{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 7; ++round) {
    const std::uint64_t first = std::uint64_t{0xd2511f53} * x[0];
    const std::uint64_t second = std::uint64_t{0xcd9e8d57} * x[2];
    x = {static_cast<std::uint32_t>(second >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return x;
}

}  // namespace

bool DropoutMask::keeps(int head, int row, int key) const {
  if (kept == 256) return true;
  const auto i = static_cast<std::uint32_t>(row);
  const auto j = static_cast<std::uint32_t>(key);
  const auto at = static_cast<std::uint64_t>(offset);
  const auto low = static_cast<std::uint32_t>(at);
  const auto high = static_cast<std::uint32_t>(at >> 32);
  const auto words = philox(
      {i / 32 * 8 + i % 8 + (high << 20), j / 32 * 8 + j % 8, first_head + static_cast<std::uint32_t>(head), low},
      static_cast<std::uint64_t>(seed));
  const std::uint32_t word = words[static_cast<std::size_t>(i / 16 % 2 * 2 + j / 16 % 2)];
  return (word >> (8 * (i / 8 % 2 * 2 + j / 8 % 2)) & 255) < kept;
}

DropoutMask DropoutMask::from(int sequence, int heads_q) const {
  DropoutMask result = *this;
  result.first_head += static_cast<std::uint32_t>(sequence) * static_cast<std::uint32_t>(heads_q);
  return result;
}

attune_dropout usual_dropout(bool dropout) {
  if (!dropout) return {};
  return {.p = 0.3F, .seed = 0x1234567890abcdef, .offset = 0x500000004, .state = nullptr};
}

DropoutMask usual_mask(bool dropout) {
  const attune_dropout given = usual_dropout(dropout);
  return {.seed = given.seed, .offset = given.offset, .kept = kept_values(given.p)};
}

}  // namespace attune
