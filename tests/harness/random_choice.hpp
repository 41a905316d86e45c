// What random cases are drawn with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/random.hpp"

namespace attune::testing {

template <class T, std::size_t count>
T one_of(Random& random, const std::array<T, count>& values) {
  return values[static_cast<std::size_t>(random.below(count))];
}

inline int up_to(Random& random, int most) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(most) + 1));
}

inline bool once_in(Random& random, int times) { return random.below(static_cast<std::uint64_t>(times)) == 0; }

}  // namespace attune::testing
