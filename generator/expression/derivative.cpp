#include "generator/expression/derivative.hpp"

#include <algorithm>
#include <optional>

namespace attune::expression {
namespace {

bool reads_s(const Node& node) {
  return (node.op == Op::name && node.index == static_cast<int>(Name::s)) || std::ranges::any_of(node.parts, reads_s);
}

/// The derivative by s where it is the same whole number for all values; nothing where it is not, or is not seen to be.
std::optional<int> slope_of(const Node& node) {
  if (!reads_s(node)) return 0;
  if (node.op == Op::name) return 1;
  const auto part = [&](std::size_t i) { return slope_of(node.parts[i]); };
  switch (node.op) {
    case Op::negate: {
      const std::optional<int> x = part(0);
      return x ? std::optional(-*x) : std::nullopt;
    }
    case Op::add:
    case Op::subtract: {
      const std::optional<int> x = part(0);
      const std::optional<int> y = part(1);
      if (!x || !y) return std::nullopt;
      return node.op == Op::add ? *x + *y : *x - *y;
    }
    case Op::select: {
      if (reads_s(node.parts[0])) return std::nullopt;  // a step where the condition changes
      const std::optional<int> yes = part(1);
      return yes == part(2) ? yes : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

bool has_unit_slope(const Expression& score) { return slope_of(score.root) == 1; }

}  // namespace attune::expression
