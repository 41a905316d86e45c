// Which values an expression's integers and booleans may have, given ranges of its names.
#pragma once

#include <array>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// Both ends belong to it; of a boolean they are 0 or 1.
struct Interval {
  long long low = 0;
  long long high = 0;

  bool operator==(const Interval&) const = default;
  [[nodiscard]] bool has(long long value) const { return low <= value && value <= high; }
};

inline constexpr Interval any_boolean{0, 1};
inline constexpr Interval any_integer{-2147483648LL, 2147483647LL};

/// Of each name, in the order of Name; that of s says nothing.
using Ranges = std::array<Interval, name_words.size()>;

/// Those of any call.
Ranges widest_ranges();

/// An interval that has every value of a boolean or an integer, whatever parameters hold. It may leave 32 bits.
Interval interval_of(const Node& node, const Ranges& ranges);

/// What a mask shows of a box of queries and keys.
enum class Visibility { none, some, all };
Visibility visibility_of(const Node& mask, const Ranges& ranges);

/// Whether ranges of names, and of what is looked up where `looks_up`, can say more of a boolean or an integer than its
/// type does.
bool is_bounded(const Node& node, bool looks_up = false);

/// Whether it takes what is looked up to say what there is to be said of a mask: a kernel of its own then decides which
/// blocks are dead, and which full (templates/mask_blocks.cu).
bool bounds_by_lookups(const Expression& mask);

/// Whether a value depends on this name.
bool depends_on(const Node& node, Name name);

/// Whether the value depends on the head.
bool depends_on_head(const Node& node);

}  // namespace attune::expression
