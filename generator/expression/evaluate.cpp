#include "generator/expression/evaluate.hpp"

#include <algorithm>
#include <cmath>

namespace attune::expression {
namespace {

double of_one(Op op, double x) {
  switch (op) {
    case Op::negate:
      return -x;
    case Op::invert:
      return x == 0 ? 1 : 0;
    case Op::absolute:
      return std::fabs(x);
    case Op::exp2:
      return std::exp2(x);
    case Op::log2:
      return std::log2(x);
    case Op::tanh:
      return std::tanh(x);
    default:
      return x;  // a conversion
  }
}

double of_two(Op op, double x, double y) {
  switch (op) {
    case Op::add:
      return x + y;
    case Op::subtract:
      return x - y;
    case Op::multiply:
      return x * y;
    case Op::divide:
      return x / y;
    case Op::floor_divide:
      return std::floor(x / y);
    case Op::remainder:
      return x - std::floor(x / y) * y;
    case Op::less:
      return x < y ? 1 : 0;
    case Op::less_equal:
      return x <= y ? 1 : 0;
    case Op::greater:
      return x > y ? 1 : 0;
    case Op::greater_equal:
      return x >= y ? 1 : 0;
    case Op::equal:
      return x == y ? 1 : 0;
    case Op::unequal:
      return x != y ? 1 : 0;
    case Op::both:
      return x != 0 && y != 0 ? 1 : 0;
    case Op::either:
      return x != 0 || y != 0 ? 1 : 0;
    case Op::minimum:
      return std::fmin(x, y);
    default:
      return std::fmax(x, y);
  }
}

class Evaluator {
 public:
  Evaluator(std::span<const Array> arrays, const Place& place) : arrays_(arrays), place_(place) {}

  [[nodiscard]] double value(const Node& node) const {
    switch (node.op) {
      case Op::number:
        return node.number;
      case Op::name:
        return named(static_cast<Name>(node.index));
      case Op::lookup:
        return element(arrays_[static_cast<std::size_t>(node.index)], node.parts);
      case Op::select:
        return value(node.parts[value(node.parts[0]) != 0 ? 1 : 2]);
      default:
        break;
    }
    const double first = value(node.parts[0]);
    return node.parts.size() == 1 ? of_one(node.op, first) : of_two(node.op, first, value(node.parts[1]));
  }

 private:
  [[nodiscard]] double named(Name name) const {
    switch (name) {
      case Name::s:
        return place_.s;
      case Name::q:
        return place_.q;
      case Name::p:
        return place_.p;
      case Name::k:
        return place_.k;
      case Name::h:
        return place_.h;
      case Name::hk:
        return place_.hk;
      case Name::b:
        break;
    }
    return place_.b;
  }

  [[nodiscard]] double element(const Array& array, const std::vector<Node>& indices) const {
    std::size_t at = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const double inside = std::clamp(value(indices[i]), 0.0, array.extents[i] - 1.0);
      at = at * static_cast<std::size_t>(array.extents[i]) + static_cast<std::size_t>(inside);
    }
    return array.values[at];
  }

  std::span<const Array> arrays_;
  const Place& place_;
};

}  // namespace

double value_of(const Expression& expression, std::span<const Array> arrays, const Place& place) {
  return Evaluator(arrays, place).value(expression.root);
}

}  // namespace attune::expression
