#include "runtime/lab/random_values.hpp"

#include <cmath>
#include <numbers>

#include "runtime/base/random.hpp"
#include "runtime/base/storage.hpp"

namespace attune {

void draw_values(Dtype dtype, std::uint64_t seed, std::span<std::uint16_t> values) {
  // Box and Muller for the first million, then the same again shifted: large inputs must not take minutes to draw.
  constexpr std::size_t period = (std::size_t{1} << 20) - 3;
  Random random(seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i < period) {
      const double radius = std::sqrt(-2 * std::log(random.uniform()));
      values[i] = to_storage(dtype, static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.uniform())));
    } else {
      values[i] = values[i - period];
    }
  }
}

std::vector<std::uint16_t> random_values(Dtype dtype, std::size_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> values(count);
  draw_values(dtype, seed, values);
  return values;
}

Angles random_angles(Dtype dtype, std::size_t count, std::uint64_t seed) {
  constexpr double full_turn = 6.283185307179586;
  Random random(seed);
  Angles angles;
  for (std::size_t i = 0; i < count; ++i) {
    const double angle = random.uniform() * full_turn;
    angles.cos.push_back(to_storage(dtype, static_cast<float>(std::cos(angle))));
    angles.sin.push_back(to_storage(dtype, static_cast<float>(std::sin(angle))));
  }
  return angles;
}

}  // namespace attune
