// What expressions say that kernels have a faster way to do: limits of the keys that a query sees around its own
// position, as the causal mask and windows have them, and soft caps.
#pragma once

#include <optional>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// A mask as limits and what they leave to say: query p sees no key before p - left and none behind p + right, and of
/// the others those of `rest`.
struct MaskLimits {
  int left = -1;                     ///< -1: there is none
  int right = -1;                    ///< likewise
  std::optional<Expression> rest{};  ///< nothing: all of them

  [[nodiscard]] bool any() const { return left >= 0 || right >= 0; }
};

/// Takes from the conditions that all have to hold those that compare k and p alone, as `k <= p` and `p - k < 1024`.
/// Limits on the other side of p, as in `k < p`, stay in the rest: a window has p in it.
MaskLimits limits_of(const Expression& mask);

/// A mask as its first keys, which every query sees, and what it says of all: `rest or k < count`.
struct FirstKeys {
  int count = 0;
  Expression rest;
};

/// The most that first keys may be: those of one step of a product.
inline constexpr int most_first_keys = 16;

/// Takes `k < 4` from `p - k < 1024 or k < 4`; nothing from masks that are no such alternative.
std::optional<FirstKeys> first_keys_of(const Expression& mask);

/// The cap c of a score that is `c * tanh(s / c)`; 0 of others.
float softcap_of(const Expression& score);

}  // namespace attune::expression
