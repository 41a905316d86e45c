#include "generator/expression/interval.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace attune::expression {
namespace {

long long floor_of(long long x, long long y) { return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0); }

Interval hull(std::initializer_list<long long> values) { return {std::min(values), std::max(values)}; }

/// Of a comparison that surely holds, or never does.
Interval truth(bool surely, bool never) { return {surely ? 1 : 0, never ? 0 : 1}; }

Interval opposite(const Interval& x) { return {1 - x.high, 1 - x.low}; }

Interval compared(Op op, const Interval& x, const Interval& y) {
  switch (op) {
    case Op::less:
      return truth(x.high < y.low, x.low >= y.high);
    case Op::less_equal:
      return truth(x.high <= y.low, x.low > y.high);
    case Op::greater:
      return compared(Op::less, y, x);
    case Op::greater_equal:
      return compared(Op::less_equal, y, x);
    case Op::equal:
      return truth(x.low == x.high && x == y, x.high < y.low || y.high < x.low);
    default:
      return opposite(compared(Op::equal, x, y));
  }
}

bool is_comparison(Op op) { return op >= Op::less && op <= Op::unequal; }

bool is_real(const Node& node) { return node.type == Type::real; }

Interval remainder(const Interval& x, const Interval& y) {
  if (y.has(0)) return any_integer;
  if (y.low == y.high && floor_of(x.low, y.low) == floor_of(x.high, y.low)) {
    const long long whole = floor_of(x.low, y.low) * y.low;
    return {x.low - whole, x.high - whole};
  }
  return y.low > 0 ? Interval{0, y.high - 1} : Interval{y.low + 1, 0};
}

}  // namespace

Ranges widest_ranges() {
  constexpr int beyond = 1 << 12;  // tiles have rows and keys behind the last ones
  constexpr Interval rows{0, most_positions + beyond};
  constexpr Interval heads{0, most_heads - 1};
  return {Interval{}, rows, {-most_positions, most_positions + beyond}, rows, heads, heads, {0, most_sequences - 1}};
}

Interval interval_of(const Node& node, const Ranges& ranges) {
  if (is_comparison(node.op) && std::ranges::any_of(node.parts, is_real)) return any_boolean;
  if (node.op == Op::lookup) return any_integer;
  if (node.op == Op::number) return {static_cast<long long>(node.number), static_cast<long long>(node.number)};
  if (node.op == Op::name) return ranges.at(static_cast<std::size_t>(node.index));
  const auto part = [&](std::size_t i) { return interval_of(node.parts[i], ranges); };
  const Interval x = part(0);
  if (node.op == Op::negate) return {-x.high, -x.low};
  if (node.op == Op::invert) return opposite(x);
  if (node.op == Op::absolute) {
    return x.has(0) ? Interval{0, std::max(-x.low, x.high)} : hull({std::abs(x.low), std::abs(x.high)});
  }
  const Interval y = part(1);
  switch (node.op) {
    case Op::select: {
      const Interval z = part(2);
      if (x.low == x.high) return x.low != 0 ? y : z;
      return hull({y.low, y.high, z.low, z.high});
    }
    case Op::add:
      return {x.low + y.low, x.high + y.high};
    case Op::subtract:
      return {x.low - y.high, x.high - y.low};
    case Op::multiply:
      return hull({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
    case Op::floor_divide:
      if (y.low == 0 || y.high == 0 || y.has(0)) return any_integer;
      return hull({floor_of(x.low, y.low), floor_of(x.low, y.high), floor_of(x.high, y.low), floor_of(x.high, y.high)});
    case Op::remainder:
      return remainder(x, y);
    case Op::both:
    case Op::minimum:
      return {std::min(x.low, y.low), std::min(x.high, y.high)};
    case Op::either:
    case Op::maximum:
      return {std::max(x.low, y.low), std::max(x.high, y.high)};
    default:
      return compared(node.op, x, y);
  }
}

Visibility visibility_of(const Node& mask, const Ranges& ranges) {
  const Interval seen = interval_of(mask, ranges);
  return seen.low == 1 ? Visibility::all : seen.high == 0 ? Visibility::none : Visibility::some;
}

bool is_bounded(const Node& node, bool looks_up) {
  if (node.type == Type::real || (node.op == Op::lookup && !looks_up)) return false;
  const auto is_known = [&](const Node& part) { return is_bounded(part, looks_up); };
  if (node.op == Op::both || node.op == Op::either) return std::ranges::any_of(node.parts, is_known);
  // What a condition leaves open has the values of both.
  if (node.op == Op::select) return is_known(node.parts[1]) && is_known(node.parts[2]);
  return std::ranges::all_of(node.parts, is_known);
}

bool bounds_by_lookups(const Expression& mask) {
  const auto says_more = [](const auto& self, const Node& node) -> bool {
    if (is_bounded(node, true) && !is_bounded(node)) return true;
    return (node.op == Op::both || node.op == Op::either) &&
           std::ranges::any_of(node.parts, [&](const Node& part) { return self(self, part); });
  };
  return mask.use == Use::mask && says_more(says_more, mask.root);
}

bool depends_on(const Node& node, Name name) {
  return (node.op == Op::name && node.index == static_cast<int>(name)) ||
         std::ranges::any_of(node.parts, [&](const Node& part) { return depends_on(part, name); });
}

bool depends_on_head(const Node& node) { return depends_on(node, Name::h) || depends_on(node, Name::hk); }

}  // namespace attune::expression
