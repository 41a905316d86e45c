#include "generator/expression/derivative.hpp"

#include <limits>
#include <optional>

#include "generator/expression/interval.hpp"

namespace attune::expression {
namespace {

/// Whether a score is -inf: it hides the key, so that nothing of its gradient is left, whatever the derivative.
bool hides(const Node& node) {
  return node.op == Op::number && node.number == -std::numeric_limits<double>::infinity();
}

/// The derivative by s where it is the same whole number for all values; nothing where it is not, or is not seen to be.
std::optional<int> slope_of(const Node& node) {
  if (!depends_on(node, Name::s)) return 0;
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
      if (depends_on(node.parts[0], Name::s)) return std::nullopt;  // a step where the condition changes
      if (hides(node.parts[1])) return part(2);
      const std::optional<int> yes = part(1);
      return hides(node.parts[2]) || yes == part(2) ? yes : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

Node number_of(double value, Type type) { return {.op = Op::number, .type = type, .number = value}; }

bool is_number(const Node& node, double value) { return node.op == Op::number && node.number == value; }

/// A number's opposite or conversion as one number.
Node applied_to(Op op, Type type, const Node& x) {
  if (x.op == Op::number) return number_of(op == Op::negate ? -x.number : x.number, type);
  return {.op = op, .type = type, .parts = {x}};
}

Node product_of(const Node& x, const Node& y) {
  if (is_number(x, 1)) return y;
  if (is_number(y, 1)) return x;
  return {.op = Op::multiply, .type = x.type, .parts = {x, y}};
}

/// The derivative by k where it is the same for all keys: an expression without k, of the same type. Nothing where it
/// is not, or is not seen to be.
std::optional<Node> step_of(const Node& node) {
  if (!depends_on(node, Name::k)) return number_of(0, node.type);
  if (node.op == Op::name) return number_of(1, node.type);
  const auto part = [&](std::size_t i) { return step_of(node.parts[i]); };
  switch (node.op) {
    case Op::convert:
    case Op::negate: {
      const std::optional<Node> x = part(0);
      if (!x) return std::nullopt;
      return applied_to(node.op, node.type, *x);
    }
    case Op::add:
    case Op::subtract: {
      std::optional<Node> x = part(0);
      std::optional<Node> y = part(1);
      if (!x || !y) return std::nullopt;
      if (is_number(*y, 0)) return x;
      if (!is_number(*x, 0)) return Node{.op = node.op, .type = node.type, .parts = {*x, *y}};
      return node.op == Op::add ? y : applied_to(Op::negate, node.type, *y);
    }
    case Op::multiply: {
      const bool first = depends_on(node.parts[0], Name::k);
      if (first && depends_on(node.parts[1], Name::k)) return std::nullopt;
      const std::optional<Node> x = part(first ? 0 : 1);
      if (!x) return std::nullopt;
      return product_of(node.parts[first ? 1 : 0], *x);
    }
    case Op::divide: {
      if (depends_on(node.parts[1], Name::k)) return std::nullopt;
      const std::optional<Node> x = part(0);
      if (!x) return std::nullopt;
      return Node{.op = Op::divide, .type = node.type, .parts = {*x, node.parts[1]}};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

bool has_unit_slope(const Expression& score) { return slope_of(score.root) == 1; }

std::optional<Node> added_by_key(const Expression& score) {
  if (!has_unit_slope(score) || !depends_on(score.root, Name::k)) return std::nullopt;
  std::optional<Node> step = step_of(score.root);
  if (step && is_number(*step, 0)) return std::nullopt;
  return step;
}

}  // namespace attune::expression
