#include "generator/expression/cuda.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "generator/expression/derivative.hpp"
#include "generator/expression/interval.hpp"
#include "generator/expression/limits.hpp"

namespace attune::expression {
namespace {

/// Truth values are joined bit by bit: behind `||` a look-up waits for a branch, and each for the one before.
constexpr std::string_view sign_of(Op op) {
  switch (op) {
    case Op::either:
      return "|";
    case Op::both:
      return "&";
    case Op::less:
      return "<";
    case Op::less_equal:
      return "<=";
    case Op::greater:
      return ">";
    case Op::greater_equal:
      return ">=";
    case Op::equal:
      return "==";
    case Op::unequal:
      return "!=";
    case Op::add:
      return "+";
    case Op::subtract:
      return "-";
    case Op::multiply:
      return "*";
    case Op::divide:
      return "/";
    default:
      return "";
  }
}

/// Of templates/blocks/score_place.cuh and others.
constexpr std::string_view function_of(Op op) {
  switch (op) {
    case Op::floor_divide:
      return "floor_divide";
    case Op::remainder:
      return "remainder";
    case Op::minimum:
      return "minimum_of";
    case Op::maximum:
      return "maximum_of";
    case Op::absolute:
      return "absolute_of";
    case Op::exp2:
      return "exp2_approx";
    case Op::log2:
      return "log2_approx";
    case Op::tanh:
      return "tanh_of";
    case Op::convert:
      return "static_cast<float>";
    default:
      return "";
  }
}

/// Of templates/blocks/ranges.cuh, where an operator has no such name there.
constexpr std::string_view range_function_of(Op op) {
  switch (op) {
    case Op::either:
      return "either";
    case Op::both:
      return "both";
    case Op::invert:
      return "opposite_of";
    case Op::less:
      return "less";
    case Op::less_equal:
      return "less_equal";
    case Op::equal:
      return "equal";
    case Op::add:
      return "range_sum";
    case Op::subtract:
      return "difference";
    case Op::multiply:
      return "product";
    case Op::negate:
      return "negative_of";
    case Op::select:
      return "chosen";
    default:
      return function_of(op);
  }
}

/// A look-up that is the same for all keys of a row, or for all rows of a key, and so is made once.
struct SharedLookup {
  std::string value;   ///< as a kernel writes it
  std::string owner;   ///< "row" or "key", of Expressions::Row or Expressions::Key
  std::string member;  ///< of that
  Type type;

  [[nodiscard]] std::string_view type_name() const { return type == Type::real ? "float" : "int"; }
};

class Writer {
 public:
  Writer(const Expression& expression, std::vector<SharedLookup> shared)
      : expression_(expression), shared_(std::move(shared)) {}

  /// The value, in parentheses where it is more than a word.
  [[nodiscard]] std::string value(const Node& node) const {
    switch (node.op) {
      case Op::number:
        return number_text(node);
      case Op::name:
        return static_cast<Name>(node.index) == Name::s ? "s" : fmt::format("at.{}", word_of(node));
      case Op::lookup:
        return lookup(node);
      case Op::negate:
        return fmt::format("-{}", operand(node.parts[0]));
      case Op::invert:
        return fmt::format("!{}", operand(node.parts[0]));
      case Op::select:
        return fmt::format("{} ? {} : {}", operand(node.parts[0]), operand(node.parts[1]), operand(node.parts[2]));
      case Op::divide:
        // One operation instead of some ten.
        if (const std::optional<float> inverse = inverse_of(node.parts[1])) {
          const Node factor{.op = Op::number, .type = Type::real, .number = *inverse};
          return fmt::format("{} * {}", operand(node.parts[0]), number_text(factor));
        }
        break;
      default:
        break;
    }
    if (const std::string_view function = function_of(node.op); !function.empty()) {
      return fmt::format("{}({})", function, list_of(node.parts));
    }
    const Node& first = node.parts[0];
    return fmt::format("{} {} {}", is_chained(node.op, first.op) ? value(first) : operand(first), sign_of(node.op),
                       operand(node.parts[1]));
  }

  /// Adds the outermost look-ups that do not depend on k.
  static void add_row_lookups(const Expression& expression, const Node& node, std::vector<SharedLookup>& found) {
    add_lookups(
        expression, node, "row", [](const Node& lookup) { return !depends_on(lookup, Name::k); }, found);
  }

  /// Adds the outermost of the others that depend on k, but on nothing that the rows of a tile have of their own.
  static void add_key_lookups(const Expression& expression, const Node& node, std::vector<SharedLookup>& found) {
    const auto is_of_keys = [](const Node& lookup) {
      constexpr std::array of_rows{Name::s, Name::q, Name::p, Name::h};
      return depends_on(lookup, Name::k) &&
             std::ranges::none_of(of_rows, [&](Name name) { return depends_on(lookup, name); });
    };
    add_lookups(expression, node, "key", is_of_keys, found);
  }

  /// The same of ranges.
  [[nodiscard]] std::string range(const Node& node, bool looks_up) const {
    if (node.type == Type::boolean && !is_bounded(node, looks_up)) return "unknown()";
    if (node.op == Op::number) return fmt::format("only({})", number_text(node));
    if (node.op == Op::name) return fmt::format("in.{}", word_of(node));
    std::vector<std::string> parts;
    for (const Node& part : node.parts) parts.push_back(range(part, looks_up));
    const auto call = [](std::string_view function, const std::vector<std::string>& operands) {
      return fmt::format("{}({})", function, fmt::join(operands, ", "));
    };
    if (node.op == Op::lookup) {
      return call(fmt::format("{}_in", expression_.parameters[static_cast<std::size_t>(node.index)].name), parts);
    }
    if (node.op == Op::unequal) return call("opposite_of", {call("equal", parts)});
    if (node.op == Op::greater || node.op == Op::greater_equal) {
      std::ranges::reverse(parts);
      return call(node.op == Op::greater ? "less" : "less_equal", parts);
    }
    return call(range_function_of(node.op), parts);
  }

 private:
  template <class IsShared>
  static void add_lookups(const Expression& expression, const Node& node, std::string_view owner,
                          const IsShared& is_shared, std::vector<SharedLookup>& found) {
    if (node.op != Op::lookup || !is_shared(node)) {
      for (const Node& part : node.parts) add_lookups(expression, part, owner, is_shared, found);
      return;
    }
    std::string value = Writer(expression, {}).value(node);
    if (std::ranges::find(found, value, &SharedLookup::value) != found.end()) return;
    const std::string& name = expression.parameters[static_cast<std::size_t>(node.index)].name;
    found.push_back({std::move(value), std::string{owner}, fmt::format("{}_{}", name, found.size()), node.type});
  }

  [[nodiscard]] std::string lookup(const Node& node) const {
    std::string text = fmt::format("{}_at({})", expression_.parameters[static_cast<std::size_t>(node.index)].name,
                                   list_of(node.parts));
    const auto known = std::ranges::find(shared_, text, &SharedLookup::value);
    return known == shared_.end() ? text : fmt::format("{}.{}", known->owner, known->member);
  }

  /// Of a power of two, whose product with it is the quotient to the bit: a mask shows the same keys.
  static std::optional<float> inverse_of(const Node& node) {
    if (node.op == Op::convert) return inverse_of(node.parts[0]);
    const double size = std::abs(node.number);
    int exponent = 0;
    if (node.op != Op::number || size < 0x1p-100 || size > 0x1p100 || std::frexp(size, &exponent) != 0.5) {
      return std::nullopt;
    }
    return static_cast<float>(1 / node.number);
  }

  static std::string_view word_of(const Node& node) { return name_words.at(static_cast<std::size_t>(node.index)); }

  /// Whether an operation's first operand needs no parentheses: compilers count those that are open, and a sum or a
  /// product may have hundreds of terms.
  static bool is_chained(Op op, Op first) {
    const auto adds = [](Op one) { return one == Op::add || one == Op::subtract; };
    return (adds(op) && adds(first)) || (op == first && (op == Op::multiply || op == Op::both || op == Op::either));
  }

  [[nodiscard]] std::string operand(const Node& node) const {
    const bool is_word =
        node.op == Op::name || node.op == Op::lookup || node.op == Op::number || !function_of(node.op).empty();
    return is_word ? value(node) : fmt::format("({})", value(node));
  }

  [[nodiscard]] std::string list_of(const std::vector<Node>& parts) const {
    std::vector<std::string> texts;
    for (const Node& part : parts) texts.push_back(value(part));
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  static std::string number_text(const Node& node) {
    if (node.type == Type::integer) return fmt::format("{:.0f}", node.number);
    if (std::isinf(node.number)) return node.number < 0 ? "minus_infinity()" : "(-minus_infinity())";
    std::string text = fmt::format("{}", static_cast<float>(node.number));
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text + "f";
  }

  const Expression& expression_;
  std::vector<SharedLookup> shared_;
};

/// Comments of no more than a line, and no more than one.
std::string commented(std::string_view text) {
  constexpr std::size_t longest = 112;
  return text.size() <= longest ? std::string{text} : fmt::format("{}...", text.substr(0, longest - 3));
}

/// Breaks what is too long for a line at its blanks.
std::string returned(std::string_view value) {
  constexpr std::size_t width = 112;
  std::string result = "    return ";
  std::size_t begin = 0;
  std::size_t room = width - 11;
  while (value.size() - begin + 1 > room) {
    std::size_t end = value.rfind(' ', begin + room);
    if (end == std::string_view::npos || end <= begin) end = value.find(' ', begin);
    if (end == std::string_view::npos) break;
    result += value.substr(begin, end - begin);
    result += "\n           ";
    begin = end + 1;
  }
  return result + std::string{value.substr(begin)} + ";\n";
}

std::string accessor_of(const Parameter& parameter, std::size_t number) {
  const std::string_view type = parameter.type == Type::real ? "float" : "int";
  std::vector<std::string> declared;
  std::string steps;
  const std::size_t last = parameter.per.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) declared.push_back(fmt::format("int i{}", i));
  for (std::size_t i = 0; i < last; ++i) {
    steps += i == 0 ? std::string("    i64 place = nearest_index(array, 0, i0);\n")
                    : fmt::format("    place = place * array.extents[{0}] + nearest_index(array, {0}, i{0});\n", i);
  }
  // The row apart, as keys beside each other differ in the last index alone.
  const std::string row = last == 0 ? std::string{} : fmt::format(" + place * array.extents[{}]", last);
  return fmt::format(
      "\n  // {}\n"
      "  __device__ __forceinline__ {} {}_at({}) const {{\n"
      "    const AttuneArray& array = params.arrays[{}];\n{}"
      "    const void* const elements = kept(static_cast<const {}*>(array.data){});\n"
      "    return load_global_{}(static_cast<const {}*>(elements) + nearest_index(array, {}, i{}));\n"
      "  }}\n",
      parameter.text(), type, parameter.name, fmt::join(declared, ", "), number, steps, type, row, type, type, last,
      last);
}

/// The same of ranges, by all lanes of a warp.
std::string range_accessor_of(const Parameter& parameter, std::size_t number) {
  std::vector<std::string> declared;
  std::vector<std::string> indices;
  for (std::size_t i = 0; i < parameter.per.size(); ++i) {
    declared.push_back(fmt::format("const Range& i{}", i));
    indices.push_back(fmt::format("i{}", i));
  }
  return fmt::format(
      "\n  // {}\n"
      "  __device__ __forceinline__ Range {}_in({}) const {{\n"
      "    return looked_up(params.arrays[{}], {{{}}});\n"
      "  }}\n",
      parameter.text(), parameter.name, fmt::join(declared, ", "), number, fmt::join(indices, ", "));
}

/// Whether a value reads the score, a word of its own.
bool reads_s(std::string_view value) {
  const auto is_part = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; };
  for (std::size_t at = value.find('s'); at != std::string_view::npos; at = value.find('s', at + 1)) {
    const bool begins = at == 0 || !is_part(value[at - 1]);
    const bool ends = at + 1 == value.size() || !is_part(value[at + 1]);
    if (begins && ends) return true;
  }
  return false;
}

/// A parameter's name, as a comment where the value does not need it.
std::string named_if(std::string_view name, std::string_view value) {
  const bool used = value.find(fmt::format("{}.", name)) != std::string_view::npos;
  return used ? std::string{name} : fmt::format("/*{}*/", name);
}

std::string function_text(const std::string& comment, std::string_view head, const std::string& value,
                          std::string_view further = {}) {
  const bool ignores_s = head.ends_with("float s, ") && !reads_s(value);
  const std::string_view begin = ignores_s ? "float score(float /*s*/, " : head;
  return fmt::format(
      "\n  // {}\n"
      "  __device__ __forceinline__ {}const ScorePlace& {}, const Row& {}{}) const {{\n{}  }}\n",
      comment, begin, named_if("at", value), named_if("row", value), further, returned(value));
}

/// Declares what is looked up once for all of a row or a key, and the function that does.
std::string shared_text(std::string_view comment, std::string_view type, std::string_view function,
                        const std::vector<SharedLookup>& lookups, const std::string& methods = {}) {
  std::string members;
  std::vector<std::string> values;
  for (const SharedLookup& lookup : lookups) {
    members += fmt::format("    {} {};\n", lookup.type_name(), lookup.member);
    values.push_back(lookup.value);
  }
  const std::string value = fmt::format("{{{}}}", fmt::join(values, ", "));
  return fmt::format(
      "\n  // {}\n"
      "  struct {} {{\n{}{}  }};\n"
      "  __device__ __forceinline__ {} {}(const ScorePlace& {}) const {{\n{}  }}\n",
      comment, type, members, methods, type, function, named_if("at", value), returned(value));
}

std::string row_text(const std::vector<SharedLookup>& of_rows) {
  return shared_text("What is looked up once for all keys of a row.", "Row", "row", of_rows);
}

std::string key_text(const std::vector<SharedLookup>& of_keys) {
  std::vector<std::string> values;
  for (const SharedLookup& lookup : of_keys) values.push_back(fmt::format("shuffle_from({}, lane)", lookup.member));
  const std::string value = fmt::format("{{{}}}", fmt::join(values, ", "));
  const std::string methods = fmt::format(
      "{}    // That of the key that another lane of the warp has.\n"
      "    __device__ __forceinline__ Key from(u32 {}) const {{ return {}; }}\n",
      of_keys.empty() ? "" : "\n", of_keys.empty() ? "/*lane*/" : "lane", value);
  return shared_text("What the mask looks up once for all rows of a key.", "Key", "key", of_keys, methods);
}

constexpr std::string_view head = R"(// What the spec says of scores and of which keys a query sees.
#pragma once

#include "blocks/ranges.cuh"
#include "blocks/score_functions.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "ptx/kept_pointer.cuh"
#include "ptx/lanes.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "types.h"

struct Expressions {
  const AttuneExpressionParams& params;
)";

constexpr std::string_view block_head = R"(// What the spec says of which keys queries see, of blocks of them.
#pragma once

#include "blocks/looked_up.cuh"
#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "types.h"

struct BlockExpressions {
  const AttuneExpressionParams& params;
)";

}  // namespace

std::vector<Parameter> parameters_of(const Expression* score, const Expression* mask) {
  std::vector<Parameter> result;
  for (const Expression* one : {score, mask}) {
    if (one == nullptr) continue;
    for (const Parameter& parameter : one->parameters) {
      if (std::ranges::find(result, parameter.name, &Parameter::name) == result.end()) result.push_back(parameter);
    }
  }
  return result;
}

std::string conflict_of(const Expression* score, const Expression* mask) {
  if (score == nullptr || mask == nullptr) return {};
  for (const Parameter& one : score->parameters) {
    const auto other = std::ranges::find(mask->parameters, one.name, &Parameter::name);
    if (other != mask->parameters.end() && *other != one) {
      return fmt::format("the score has {}, the mask {}", one.text(), other->text());
    }
  }
  const std::size_t count = parameters_of(score, mask).size();
  return count > most_parameters
             ? fmt::format("the score and the mask have {} parameters, over the {} of a kernel", count, most_parameters)
             : std::string{};
}

std::string cuda_text(const Expression* score, const Expression* mask, bool tilted, bool first_keys_apart) {
  const std::optional<FirstKeys> apart = first_keys_apart ? first_keys_of(*mask) : std::nullopt;
  if (apart) mask = &apart->rest;
  std::string text{head};
  const std::vector<Parameter> parameters = parameters_of(score, mask);
  for (std::size_t i = 0; i < parameters.size(); ++i) text += accessor_of(parameters[i], i);
  std::vector<SharedLookup> of_rows;
  for (const Expression* one : {score, mask}) {
    if (one != nullptr) Writer::add_row_lookups(*one, one->root, of_rows);
  }
  text += row_text(of_rows);
  if (score != nullptr) {
    const std::string value = Writer(*score, of_rows).value(score->root);
    text += function_text(commented(score->formula()), "float score(float s, ", value);
    if (const std::optional<Node> step = tilted ? added_by_key(*score) : std::nullopt) {
      text += function_text("What it adds for a key more than for the key before it.", "float added_by_key(",
                            Writer(*score, of_rows).value(*step));
    }
  }
  if (mask != nullptr) {
    std::vector<SharedLookup> of_keys;
    Writer::add_key_lookups(*mask, mask->root, of_keys);
    text += key_text(of_keys);
    std::vector<SharedLookup> shared = of_rows;
    std::ranges::copy(of_keys, std::back_inserter(shared));
    const std::string value = Writer(*mask, shared).value(mask->root);
    text += function_text(commented(mask->formula()), "bool sees(", value,
                          fmt::format(", const Key& {}", named_if("key", value)));
    const std::string range = Writer(*mask, of_rows).range(mask->root, false);
    text += fmt::format(
        "\n  // The same of all places in a box.\n"
        "  __device__ __forceinline__ static Truth shows(const ScoreBox& {}) {{\n{}  }}\n",
        named_if("in", range), returned(range));
  }
  const bool told = mask != nullptr && bounds_by_lookups(*mask);
  text += fmt::format(
      "\n  // Whether a kernel before this one tells which blocks the mask leaves (blocks/told_blocks.cuh).\n"
      "  static constexpr bool told = {};\n",
      told);
  text += fmt::format(
      "\n  // So many of a sequence's first keys a query sees whatever the mask says of them.\n"
      "  static constexpr int first_keys = {};\n",
      apart ? apart->count : 0);
  return text + "};\n";
}

std::string block_cuda_text(const Expression& mask) {
  std::string text{block_head};
  for (std::size_t i = 0; i < mask.parameters.size(); ++i) text += range_accessor_of(mask.parameters[i], i);
  const std::string range = Writer(mask, {}).range(mask.root, true);
  text += fmt::format(
      "\n  // {}\n"
      "  __device__ __forceinline__ Truth shows(const ScoreBox& {}) const {{\n{}  }}\n",
      commented(mask.formula()), named_if("in", range), returned(range));
  return text + "};\n";
}

}  // namespace attune::expression
