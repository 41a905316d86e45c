// Expressions as text: one spelling for each tree.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/expression/language.hpp"
#include "generator/hash.hpp"

namespace attune::expression {
namespace {

/// How an operation is written, and how tightly it binds its operands, as the parser reads them.
struct Spelling {
  std::string_view word;
  int strength = 8;  ///< 8: a call, a lookup or a word
};

Spelling spelling_of(Op op) {
  switch (op) {
    case Op::either:
      return {"or", 1};
    case Op::both:
      return {"and", 2};
    case Op::invert:
      return {"not ", 3};
    case Op::less:
      return {"<", 4};
    case Op::less_equal:
      return {"<=", 4};
    case Op::greater:
      return {">", 4};
    case Op::greater_equal:
      return {">=", 4};
    case Op::equal:
      return {"==", 4};
    case Op::unequal:
      return {"!=", 4};
    case Op::add:
      return {"+", 5};
    case Op::subtract:
      return {"-", 5};
    case Op::multiply:
      return {"*", 6};
    case Op::divide:
      return {"/", 6};
    case Op::floor_divide:
      return {"//", 6};
    case Op::remainder:
      return {"%", 6};
    case Op::negate:
      return {"-", 7};
    case Op::convert:
      return {"real"};
    case Op::minimum:
      return {"min"};
    case Op::maximum:
      return {"max"};
    case Op::absolute:
      return {"abs"};
    case Op::exp2:
      return {"exp2"};
    case Op::log2:
      return {"log2"};
    case Op::tanh:
      return {"tanh"};
    case Op::select:
      return {"select"};
    case Op::number:
    case Op::name:
    case Op::lookup:
      break;
  }
  return {};
}

class Writer {
 public:
  explicit Writer(const Expression& expression) : expression_(expression) {}

  [[nodiscard]] std::string text(const Node& node) const {
    if (node.op == Op::number) return number_text(node);
    if (node.op == Op::name) return std::string{name_words.at(static_cast<std::size_t>(node.index))};
    if (node.op == Op::lookup) {
      return fmt::format("{}[{}]", expression_.parameters.at(static_cast<std::size_t>(node.index)).name,
                         list_of(node.parts));
    }
    const auto [word, strength] = spelling_of(node.op);
    if (strength == Spelling().strength) return fmt::format("{}({})", word, list_of(node.parts));
    if (node.parts.size() == 1) return fmt::format("{}{}", word, text(node.parts[0], strength));
    // Operators of one strength are read from the left; of comparisons there is one.
    const int left = strength == spelling_of(Op::less).strength ? strength + 1 : strength;
    return fmt::format("{} {} {}", text(node.parts[0], left), word, text(node.parts[1], strength + 1));
  }

 private:
  [[nodiscard]] std::string text(const Node& node, int least_strength) const {
    return spelling_of(node.op).strength < least_strength ? fmt::format("({})", text(node)) : text(node);
  }

  [[nodiscard]] std::string list_of(const std::vector<Node>& parts) const {
    std::vector<std::string> texts;
    for (const Node& part : parts) texts.push_back(text(part));
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  static std::string number_text(const Node& node) {
    if (node.type == Type::integer) return fmt::format("{:.0f}", node.number);
    std::string text = fmt::format("{}", static_cast<float>(node.number));
    if (text.find_first_of(".ei") == std::string::npos) text += ".0";
    return text;
  }

  const Expression& expression_;
};

}  // namespace

std::string_view type_text(Type type) {
  constexpr std::array<std::string_view, 3> words{"a boolean", "an integer", "a real"};
  return words.at(static_cast<std::size_t>(type));
}

std::string Dimension::text() const {
  return per == Per::fixed ? std::to_string(extent) : std::string{per_words.at(static_cast<std::size_t>(per))};
}

std::string Parameter::text() const {
  std::vector<std::string> dimensions;
  for (const Dimension& dimension : per) dimensions.push_back(dimension.text());
  return fmt::format("{}: {}[{}]", name, type == Type::real ? "fp32" : "int32", fmt::join(dimensions, ", "));
}

std::string Expression::formula() const { return Writer(*this).text(root); }

std::string Expression::text() const {
  std::string result = formula();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    result += (i == 0 ? " where " : ", ") + parameters[i].text();
  }
  return result;
}

std::string Expression::slug() const {
  constexpr std::size_t longest = 16;
  constexpr std::size_t digits = 8;
  std::string words;
  for (const Parameter& parameter : parameters) {
    if (words.size() + parameter.name.size() > longest) break;
    words += parameter.name + "_";
  }
  return words + xxh3_hex(text()).substr(0, digits);
}

}  // namespace attune::expression
