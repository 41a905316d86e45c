// The expressions of a problem.
#pragma once

#include <compare>
#include <string>

namespace attune {

/// Numbers of generator/expression/pool.hpp; 0: none.
struct CallExpressions {
  int score = 0;
  int mask = 0;
  int sink = 0;  ///< 1: a logit of each head is in the softmax of its rows

  auto operator<=>(const CallExpressions&) const = default;

  /// What a variant is for, or a need asks for.
  template <class Values>
  static CallExpressions of(const Values& values) {
    return {.score = values.score, .mask = values.mask, .sink = values.sink};
  }
  /// Makes a need ask for it, a variant be for it.
  template <class Values>
  [[nodiscard]] Values given_to(Values values) const {
    values.score = score;
    values.mask = mask;
    values.sink = sink;
    return values;
  }

  [[nodiscard]] bool any() const { return score != 0 || mask != 0 || sink != 0; }

  /// "", " score (s * 0.5) mask (k <= p) sink"
  [[nodiscard]] std::string text() const;
};

}  // namespace attune
