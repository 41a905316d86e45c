#include "runtime/lab/reference_rotation.hpp"

#include "runtime/lab/reference.hpp"

namespace attune {

std::vector<std::uint16_t> rotated_row(const HostRotation& rotation, std::vector<std::uint16_t> row,
                                       std::int64_t position) {
  if (rotation.rotary == Rotary::none || position < 0 || position >= rotation.rotations) return row;
  const auto number = [&](std::uint16_t bits) { return from_storage(rotation.dtype, bits); };
  const auto half = static_cast<std::size_t>(rotation.rotary_dim / 2);
  for (std::size_t i = 0; i < half; ++i) {
    const bool halves = rotation.rotary == Rotary::halves;
    std::uint16_t& first = row[halves ? i : 2 * i];
    std::uint16_t& second = row[halves ? i + half : 2 * i + 1];
    const std::size_t angle = static_cast<std::size_t>(position) * half + i;
    const float cosine = number(rotation.cos[angle]);
    const float sine = number(rotation.sin[angle]);
    const float x = number(first);
    const float y = number(second);
    first = to_storage(rotation.dtype, x * cosine - y * sine);
    second = to_storage(rotation.dtype, x * sine + y * cosine);
  }
  return row;
}

}  // namespace attune
