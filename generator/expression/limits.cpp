#include "generator/expression/limits.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace attune::expression {
namespace {

/// k_factor * k + p_factor * p + constant.
struct Linear {
  long long k_factor = 0;
  long long p_factor = 0;
  long long constant = 0;

  [[nodiscard]] Linear times(long long factor) const {
    return {k_factor * factor, p_factor * factor, constant * factor};
  }
  [[nodiscard]] Linear plus(const Linear& other) const {
    return {k_factor + other.k_factor, p_factor + other.p_factor, constant + other.constant};
  }
};

/// An integer as sums and differences of k, p and numbers; nothing of what has more in it.
std::optional<Linear> linear_of(const Node& node) {
  if (node.type != Type::integer) return std::nullopt;
  if (node.op == Op::number) return Linear{.constant = static_cast<long long>(node.number)};
  if (node.op == Op::name) {
    if (node.index == static_cast<int>(Name::k)) return Linear{.k_factor = 1};
    if (node.index == static_cast<int>(Name::p)) return Linear{.p_factor = 1};
    return std::nullopt;
  }
  if (node.op != Op::negate && node.op != Op::add && node.op != Op::subtract) return std::nullopt;
  const std::optional<Linear> x = linear_of(node.parts[0]);
  if (!x) return std::nullopt;
  if (node.op == Op::negate) return x->times(-1);
  const std::optional<Linear> y = linear_of(node.parts[1]);
  if (!y) return std::nullopt;
  return x->plus(node.op == Op::add ? *y : y->times(-1));
}

/// What a condition says is not above 0; nothing where it is no comparison of such integers.
std::optional<Linear> difference_of(const Node& condition) {
  const bool strict = condition.op == Op::less || condition.op == Op::greater;
  const bool upwards = condition.op == Op::greater || condition.op == Op::greater_equal;
  if (!strict && !upwards && condition.op != Op::less_equal) return std::nullopt;
  const std::optional<Linear> x = linear_of(condition.parts[0]);
  const std::optional<Linear> y = linear_of(condition.parts[1]);
  if (!x || !y) return std::nullopt;
  Linear difference = x->plus(y->times(-1)).times(upwards ? -1 : 1);
  if (strict) ++difference.constant;
  return difference;
}

/// Adds the limit that a condition is; whether it is one.
bool add_limit(const Node& condition, MaskLimits& limits) {
  const std::optional<Linear> found = difference_of(condition);
  if (!found) return false;
  const Linear& difference = *found;
  const bool is_right = difference.k_factor == 1 && difference.p_factor == -1;
  const bool is_left = difference.k_factor == -1 && difference.p_factor == 1;
  const long long keys = -difference.constant;
  if ((!is_right && !is_left) || keys < 0 || keys > most_positions) return false;
  int& limit = is_right ? limits.right : limits.left;
  limit = limit < 0 ? static_cast<int>(keys) : std::min(limit, static_cast<int>(keys));
  return true;
}

/// The conditions that all have to hold, from the left.
void add_conditions(const Node& node, std::vector<Node>& found) {
  if (node.op != Op::both) {
    found.push_back(node);
    return;
  }
  for (const Node& part : node.parts) add_conditions(part, found);
}

/// The number that a node is, as a kernel has it; nothing where it is none.
std::optional<float> number_of_node(const Node& node) {
  if (node.op == Op::convert) return number_of_node(node.parts[0]);
  return node.op == Op::number ? std::optional(static_cast<float>(node.number)) : std::nullopt;
}

}  // namespace

MaskLimits limits_of(const Expression& mask) {
  std::vector<Node> conditions;
  add_conditions(mask.root, conditions);
  MaskLimits limits;
  std::erase_if(conditions, [&](const Node& condition) { return add_limit(condition, limits); });
  if (conditions.empty()) return limits;
  Node root = std::move(conditions.front());
  for (std::size_t i = 1; i < conditions.size(); ++i) {
    Node joined{.op = Op::both, .type = Type::boolean};
    joined.parts.push_back(std::move(root));
    joined.parts.push_back(std::move(conditions[i]));
    root = std::move(joined);
  }
  // Limits look nothing up, so that the rest reads what the whole does, in the same order.
  limits.rest = Expression{.use = Use::mask, .root = std::move(root), .parameters = mask.parameters};
  return limits;
}

std::optional<FirstKeys> first_keys_of(const Expression& mask) {
  if (mask.root.op != Op::either) return std::nullopt;
  for (const std::size_t first : {std::size_t{1}, std::size_t{0}}) {
    const std::optional<Linear> difference = difference_of(mask.root.parts[first]);
    if (!difference || difference->k_factor != 1 || difference->p_factor != 0) continue;
    const long long count = 1 - difference->constant;
    if (count < 1 || count > most_first_keys) continue;
    // A comparison of k looks nothing up, so that the rest reads what the whole does, in the same order.
    return FirstKeys{static_cast<int>(count),
                     {.use = Use::mask, .root = mask.root.parts[1 - first], .parameters = mask.parameters}};
  }
  return std::nullopt;
}

float softcap_of(const Expression& score) {
  const auto cap_of = [](const Node& factor, const Node& map) -> float {
    const std::optional<float> cap = number_of_node(factor);
    // Caps beyond these are no use, and their products might leave fp32.
    if (!cap || *cap < 0x1p-20F || *cap > 0x1p40F || map.op != Op::tanh || map.parts[0].op != Op::divide) return 0;
    const auto& quotient = map.parts[0].parts;
    const bool is_s = quotient[0].op == Op::name && quotient[0].index == static_cast<int>(Name::s);
    return is_s && number_of_node(quotient[1]) == cap ? *cap : 0;
  };
  if (score.root.op != Op::multiply) return 0;
  const float cap = cap_of(score.root.parts[0], score.root.parts[1]);
  return cap > 0 ? cap : cap_of(score.root.parts[1], score.root.parts[0]);
}

}  // namespace attune::expression
