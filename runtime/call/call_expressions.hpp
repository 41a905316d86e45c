// The expressions of a problem.
#pragma once

#include <compare>
#include <string>

namespace attune {

/// Numbers of generator/expression/pool.hpp; 0: none.
struct CallExpressions {
  int score = 0;
  int mask = 0;

  auto operator<=>(const CallExpressions&) const = default;
  [[nodiscard]] bool any() const { return score != 0 || mask != 0; }

  /// "", " score (s * 0.5) mask (k <= p)"
  [[nodiscard]] std::string text() const;
};

}  // namespace attune
