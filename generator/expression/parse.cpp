#include "generator/expression/parse.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "generator/expression/interval.hpp"
#include "generator/expression/lexer.hpp"

namespace attune::expression {
namespace {

struct Function {
  std::string_view name;
  Op op;
  std::size_t operands;
};
constexpr std::array<Function, 8> functions{{{"min", Op::minimum, 2},
                                             {"max", Op::maximum, 2},
                                             {"abs", Op::absolute, 1},
                                             {"exp2", Op::exp2, 1},
                                             {"log2", Op::log2, 1},
                                             {"tanh", Op::tanh, 1},
                                             {"real", Op::convert, 1},
                                             {"select", Op::select, 3}}};
constexpr std::string_view infinity_word = "inf";
constexpr std::array<std::string_view, 6> other_words{"and", "or", "not", "where", "none", infinity_word};

struct Operator {
  std::string_view sign;
  Op op;
};
constexpr std::array<Operator, 6> comparisons{{{"<=", Op::less_equal},
                                               {">=", Op::greater_equal},
                                               {"==", Op::equal},
                                               {"!=", Op::unequal},
                                               {"<", Op::less},
                                               {">", Op::greater}}};
constexpr std::array<Operator, 2> sums{{{"+", Op::add}, {"-", Op::subtract}}};
constexpr std::array<Operator, 4> products{
    {{"*", Op::multiply}, {"//", Op::floor_divide}, {"/", Op::divide}, {"%", Op::remainder}}};

/// The first thing that is wrong; parsing ends with it.
struct Wrong {
  std::size_t offset;
  std::string what;
  std::string fix;
};

class Parser {
 public:
  Parser(std::string_view text, Use use, std::span<const Parameter> parameters)
      : tokens_(tokens_of(text)), use_(use), known_(parameters.begin(), parameters.end()) {}

  Expression run() && {
    read_where();
    const Token& first = tokens_.front();
    if (first.kind == Token::Kind::end) wrong(first, "the expression is empty", usual());
    Node root = either();
    if (at_ < end_)
      wrong(now(), fmt::format("'{}' stands where the expression ends", now().text), "an operator before it");
    if (use_ == Use::mask && root.type != Type::boolean) {
      wrong(first, fmt::format("the mask is {}; it must be a boolean", type_text(root.type)), usual());
    }
    if (use_ == Use::score && root.type == Type::boolean) {
      wrong(first, "the score is a boolean; it must be a number", "select(condition, s, 0.0), or a mask");
    }
    if (use_ == Use::score) root = real(std::move(root));
    return {.use = use_, .root = std::move(root), .parameters = std::move(used_)};
  }

 private:
  [[noreturn]] static void wrong(const Token& token, std::string what, std::string fix) {
    throw Wrong{token.offset, std::move(what), std::move(fix)};
  }

  [[nodiscard]] std::string usual() const { return use_ == Use::mask ? "as in k <= p" : "as in s * 0.5"; }

  [[nodiscard]] const Token& now() const { return tokens_[std::min(at_, end_)]; }
  const Token& take() { return tokens_[std::min(at_++, end_)]; }
  bool take_if(std::string_view text) {
    if (at_ >= end_ || !now().is(text)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take_if(text)) {
      wrong(now(),
            at_ >= end_ ? fmt::format("'{}' is missing at the end", text)
                        : fmt::format("'{}' stands where '{}' is missing", now().text, text),
            "");
    }
  }

  /// "where slope: fp32[head], document: int32[batch, position]" at the end of the tokens.
  void read_where() {
    end_ = tokens_.size() - 1;
    const auto found = std::ranges::find_if(tokens_, [](const Token& token) { return token.is("where"); });
    if (found == tokens_.end()) return;
    at_ = static_cast<std::size_t>(found - tokens_.begin()) + 1;
    do {
      read_parameter();
    } while (take_if(","));
    if (at_ < end_) wrong(now(), fmt::format("'{}' stands behind a parameter", now().text), "a comma, or the end");
    end_ = static_cast<std::size_t>(found - tokens_.begin());
    at_ = 0;
  }

  void read_parameter() {
    const Token name = take();
    if (!is_parameter_name(name.text)) wrong(name, "a parameter's name is missing", "as in `slope: fp32[head]`");
    expect(":");
    const Token type = take();
    if (!type.is("fp32") && !type.is("int32")) wrong(type, fmt::format("'{}' is no type", type.text), "fp32 or int32");
    Parameter parameter{std::string{name.text}, type.is("fp32") ? Type::real : Type::integer, {}};
    expect("[");
    do {
      const Token word = take();
      Dimension dimension;
      if (!parse_dimension(word.text, dimension)) {
        wrong(word, fmt::format("'{}' is no dimension", word.text),
              fmt::format("{} or a number from 1 to {}", fmt::join(per_words, ", "), most_extent));
      }
      parameter.per.push_back(dimension);
    } while (take_if(","));
    expect("]");
    if (parameter.per.size() > most_dimensions) {
      wrong(name, fmt::format("{} has {} dimensions", name.text, parameter.per.size()),
            fmt::format("at most {}", most_dimensions));
    }
    if (std::ranges::find(known_, parameter.name, &Parameter::name) != known_.end()) {
      wrong(name, fmt::format("{} is given again", name.text), "");
    }
    known_.push_back(std::move(parameter));
  }

  /// Counts what is nested, so that no text exhausts the stack.
  class Depth {
   public:
    explicit Depth(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > most_depth) {
        wrong(parser_.now(), fmt::format("the expression is nested more than {} deep", most_depth), "");
      }
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  /// Whether it is known to be 0: also behind a minus, or as an integer that was made real.
  [[nodiscard]] bool is_zero(const Node& node) const {
    if (node.op == Op::number) return node.number == 0;
    if (node.type == Type::integer) {
      const Interval range = interval_of(node, ranges_);
      return range.low == 0 && range.high == 0;
    }
    return (node.op == Op::negate || node.op == Op::convert) && is_zero(node.parts[0]);
  }

  /// A node, checked: how many there are, its integer range, its divisor.
  Node made(const Token& at, Op op, Type type, std::vector<Node> parts) {
    if (++nodes_ > most_nodes) wrong(at, fmt::format("the expression has more than {} operations", most_nodes), "");
    Node node{.op = op, .type = type, .parts = std::move(parts)};
    if (op == Op::divide && is_zero(node.parts[1])) wrong(at, "this divides by 0", "");
    if ((op == Op::floor_divide || op == Op::remainder) && interval_of(node.parts[1], ranges_).has(0)) {
      wrong(at, "this may divide by 0", "a divisor that cannot be 0, as max(x, 1)");
    }
    if (type == Type::integer && op != Op::lookup) {
      const Interval range = interval_of(node, ranges_);
      if (range.low < any_integer.low || range.high > any_integer.high) {
        wrong(at,
              fmt::format("this integer may be {}, beyond 32 bits",
                          range.high > any_integer.high ? range.high : range.low),
              "reals, as in real(k) * k");
      }
    }
    return node;
  }

  static Node real(Node node) {
    if (node.type == Type::real) return node;
    if (node.op == Op::number) {
      node.type = Type::real;
      return node;
    }
    Node converted{.op = Op::convert, .type = Type::real};
    converted.parts.push_back(std::move(node));
    return converted;
  }

  static void need_number(const Token& at, const Node& node, std::string_view what) {
    if (node.type == Type::boolean)
      wrong(at, fmt::format("{} takes numbers, and this is a boolean", what), "select(condition, yes, no)");
  }
  static void need_boolean(const Token& at, const Node& node, std::string_view what) {
    if (node.type != Type::boolean) {
      wrong(at, fmt::format("{} takes booleans, and this is {}", what, type_text(node.type)), "a comparison");
    }
  }

  /// Both of one type.
  static Type united(Node& x, Node& y) {
    if (x.type == y.type) return x.type;
    x = real(std::move(x));
    y = real(std::move(y));
    return Type::real;
  }

  Node pair(const Token& at, Op op, Node x, Node y) {
    Type type = Type::boolean;
    if (op == Op::both || op == Op::either) {
      need_boolean(at, x, at.text);
      need_boolean(at, y, at.text);
    } else {
      need_number(at, x, at.text);
      need_number(at, y, at.text);
      if (op == Op::floor_divide || op == Op::remainder) {
        if (x.type != Type::integer || y.type != Type::integer) {
          wrong(at, fmt::format("{} takes integers", at.text), "/ divides reals");
        }
        type = Type::integer;
      } else if (op == Op::divide) {
        x = real(std::move(x));
        y = real(std::move(y));
        type = Type::real;
      } else {
        type = united(x, y);
      }
      const bool compares = std::ranges::find(comparisons, op, &Operator::op) != comparisons.end();
      if (compares) type = Type::boolean;
    }
    std::vector<Node> parts;
    parts.push_back(std::move(x));
    parts.push_back(std::move(y));
    return made(at, op, type, std::move(parts));
  }

  template <std::size_t count>
  const Operator* operator_of(const std::array<Operator, count>& table) const {
    if (at_ >= end_ || now().kind != Token::Kind::sign) return nullptr;
    const auto found = std::ranges::find(table, now().text, &Operator::sign);
    return found == table.end() ? nullptr : &*found;
  }

  Node either() {
    const Depth depth(*this);
    Node node = both();
    while (at_ < end_ && now().is("or")) {
      const Token at = take();
      node = pair(at, Op::either, std::move(node), both());
    }
    return node;
  }

  Node both() {
    Node node = inverted();
    while (at_ < end_ && now().is("and")) {
      const Token at = take();
      node = pair(at, Op::both, std::move(node), inverted());
    }
    return node;
  }

  Node inverted() {
    if (at_ >= end_ || !now().is("not")) return compared();
    const Depth depth(*this);
    const Token at = take();
    std::vector<Node> parts;
    parts.push_back(inverted());
    need_boolean(at, parts.front(), "not");
    return made(at, Op::invert, Type::boolean, std::move(parts));
  }

  Node compared() {
    Node node = sum();
    const Operator* comparison = operator_of(comparisons);
    if (comparison == nullptr) return node;
    const Token at = take();
    node = pair(at, comparison->op, std::move(node), sum());
    if (operator_of(comparisons) != nullptr) {
      wrong(now(), "comparisons do not follow each other", "two of them, with `and` between");
    }
    return node;
  }

  Node sum() {
    Node node = product();
    while (const Operator* one = operator_of(sums)) {
      const Token at = take();
      node = pair(at, one->op, std::move(node), product());
    }
    return node;
  }

  Node product() {
    Node node = negated();
    while (const Operator* one = operator_of(products)) {
      const Token at = take();
      node = pair(at, one->op, std::move(node), negated());
    }
    return node;
  }

  Node negated() {
    if (at_ >= end_ || !now().is("-")) return primary();
    const Depth depth(*this);
    const Token at = take();
    std::vector<Node> parts;
    parts.push_back(negated());
    need_number(at, parts.front(), "-");
    if (is_infinite(parts.front())) {  // one number, as its text is read again
      parts.front().number = -parts.front().number;
      return std::move(parts.front());
    }
    const Type type = parts.front().type;
    return made(at, Op::negate, type, std::move(parts));
  }

  Node primary() {
    if (at_ >= end_) wrong(now(), "something is missing at the end", "a number, a name or a parenthesis");
    const Token token = take();
    switch (token.kind) {
      case Token::Kind::integer:
      case Token::Kind::real:
        return number(token);
      case Token::Kind::word:
        return word(token);
      default:
        break;
    }
    if (!token.is("(")) {
      wrong(token, fmt::format("'{}' stands where a value is missing", token.text),
            "a number, a name or a parenthesis");
    }
    Node node = either();
    expect(")");
    return node;
  }

  Node number(const Token& token) {
    double value = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error != std::errc{} || end != token.text.data() + token.text.size() ||
        value > static_cast<double>(std::numeric_limits<float>::max())) {
      wrong(token, fmt::format("'{}' is no number that fp32 has", token.text), "");
    }
    const bool is_integer = token.kind == Token::Kind::integer;
    if (is_integer && value > static_cast<double>(any_integer.high)) {
      wrong(token, fmt::format("{} is beyond 32 bits", token.text), "a real, as 3e9");
    }
    Node node = made(token, Op::number, is_integer ? Type::integer : Type::real, {});
    node.number = is_integer ? value : static_cast<double>(static_cast<float>(value));
    return node;
  }

  static bool is_infinite(const Node& node) { return node.op == Op::number && std::isinf(node.number); }

  Node word(const Token& token) {
    if (token.text == infinity_word) {
      Node node = made(token, Op::number, Type::real, {});
      node.number = std::numeric_limits<double>::infinity();
      return node;
    }
    const auto name = std::ranges::find(name_words, token.text);
    if (name != name_words.end()) {
      const auto which = static_cast<Name>(name - name_words.begin());
      if (which == Name::s && use_ == Use::mask)
        wrong(token, "a mask does not know the score s", "q, p, k, h, hk or b");
      Node node{
          .op = Op::name, .type = which == Name::s ? Type::real : Type::integer, .index = static_cast<int>(which)};
      if (++nodes_ > most_nodes)
        wrong(token, fmt::format("the expression has more than {} operations", most_nodes), "");
      return node;
    }
    if (at_ < end_ && now().is("(")) return call(token);
    const auto parameter = std::ranges::find(known_, token.text, &Parameter::name);
    if (parameter != known_.end()) return lookup(token, *parameter);
    std::vector<std::string> words(name_words.begin(), name_words.end());
    for (const Parameter& one : known_) words.push_back(one.name);
    const std::string near = token.text.size() > 2 ? nearest_word(std::string{token.text}, words) : "";
    wrong(token, fmt::format("there is no name {}", token.text),
          near.empty() ? fmt::format("names are {}; params declares arrays", fmt::join(words, ", "))
                       : fmt::format("did you mean {}?", near));
  }

  Node call(const Token& token) {
    const auto function = std::ranges::find(functions, token.text, &Function::name);
    if (function == functions.end()) {
      std::vector<std::string> words;
      for (const Function& one : functions) words.emplace_back(one.name);
      const std::string near = nearest_word(std::string{token.text}, words);
      wrong(token, fmt::format("there is no function {}", token.text),
            near.empty() ? fmt::format("functions are {}", fmt::join(words, ", "))
                         : fmt::format("did you mean {}?", near));
    }
    expect("(");
    std::vector<Node> parts;
    do {
      parts.push_back(either());
    } while (take_if(","));
    expect(")");
    if (parts.size() != function->operands) {
      wrong(token, fmt::format("{} has {} operands", token.text, parts.size()),
            fmt::format("it takes {}", function->operands));
    }
    if (function->op == Op::select) {
      need_boolean(token, parts[0], "select's first");
      if ((parts[1].type == Type::boolean) != (parts[2].type == Type::boolean)) {
        wrong(token, "select has a boolean and a number to choose from", "two of one kind");
      }
      const Type type = united(parts[1], parts[2]);
      return made(token, Op::select, type, std::move(parts));
    }
    for (const Node& part : parts) need_number(token, part, token.text);
    if (function->op == Op::minimum || function->op == Op::maximum) {
      return pair(token, function->op, std::move(parts[0]), std::move(parts[1]));
    }
    if (function->op == Op::convert) return real(std::move(parts[0]));
    if (function->op != Op::absolute) parts[0] = real(std::move(parts[0]));
    const Type type = parts[0].type;
    return made(token, function->op, type, std::move(parts));
  }

  /// That of any call.
  static int largest_extent(const Dimension& dimension) {
    switch (dimension.per) {
      case Per::fixed:
        return dimension.extent;
      case Per::head:
      case Per::kv_head:
        return most_heads;
      case Per::batch:
        return most_sequences;
      case Per::query:
      case Per::position:
        break;
    }
    return most_positions;
  }

  Node lookup(const Token& token, const Parameter& parameter) {
    expect("[");
    std::vector<Node> parts;
    do {
      const Token at = now();
      parts.push_back(either());
      const Node& index = parts.back();
      if (index.type != Type::integer) {
        wrong(at, fmt::format("an index of {} is {}", token.text, type_text(index.type)), "an integer");
      }
      const Interval range = interval_of(index, ranges_);
      const int extent =
          parts.size() <= parameter.per.size() ? largest_extent(parameter.per[parts.size() - 1]) : most_extent;
      if (range.high < 0 || range.low >= extent) {
        wrong(at,
              fmt::format("this index of {} cannot be in range: it is {} {}", token.text,
                          range.high < 0 ? "at most" : "at least", range.high < 0 ? range.high : range.low),
              fmt::format("from 0 to {}", extent - 1));
      }
    } while (take_if(","));
    expect("]");
    if (parts.size() != parameter.per.size()) {
      wrong(token, fmt::format("{} has {} indices", token.text, parts.size()),
            fmt::format("it takes {}: {}", parameter.per.size(), parameter.text()));
    }
    auto used = std::ranges::find(used_, parameter.name, &Parameter::name);
    if (used == used_.end()) {
      if (used_.size() == most_parameters) {
        wrong(token, fmt::format("this is one parameter more than {}", most_parameters), "");
      }
      used = used_.insert(used_.end(), parameter);
    }
    Node node = made(token, Op::lookup, parameter.type, std::move(parts));
    node.index = static_cast<int>(used - used_.begin());
    return node;
  }

  std::vector<Token> tokens_;
  Use use_;
  std::vector<Parameter> known_;
  std::vector<Parameter> used_;
  Ranges ranges_ = widest_ranges();
  std::size_t at_ = 0;
  std::size_t end_ = 0;  ///< of the formula: the token behind it
  int depth_ = 0;
  int nodes_ = 0;
};

}  // namespace

bool is_parameter_name(std::string_view word) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  constexpr std::size_t longest = 32;
  return !word.empty() && word.size() <= longest && is_letter(word.front()) && std::ranges::all_of(word, is_part) &&
         std::ranges::find(name_words, word) == name_words.end() &&
         std::ranges::find(functions, word, &Function::name) == functions.end() &&
         std::ranges::find(other_words, word) == other_words.end();
}

bool parse_dimension(std::string_view word, Dimension& dimension) {
  const auto found = std::ranges::find(per_words, word);
  if (found != per_words.end()) {
    dimension = {static_cast<Per>(found - per_words.begin()), 0};
    return true;
  }
  int extent = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), extent);
  if (error != std::errc{} || end != word.data() + word.size() || extent < 1 || extent > most_extent) return false;
  dimension = {Per::fixed, extent};
  return true;
}

Result<Expression> parse(std::string_view text, Use use, std::span<const Parameter> parameters, const Location& where) {
  return parse(text, use, parameters, [&](std::size_t offset) {
    const std::string_view before = text.substr(0, offset);
    const std::size_t line = before.rfind('\n');
    Location place = where;
    place.line += static_cast<int>(std::ranges::count(before, '\n'));
    if (line == std::string_view::npos) {
      if (place.column > 0) place.column += static_cast<int>(offset);
    } else {
      place.column = static_cast<int>(offset - line);
    }
    return place;
  });
}

Result<Expression> parse(std::string_view text, Use use, std::span<const Parameter> parameters,
                         const std::function<Location(std::size_t)>& place_of) {
  Result<Expression> result;
  const auto report = [&](std::size_t offset, std::string what, std::string fix) {
    result.problems.push_back({place_of(offset), std::move(what), std::move(fix)});
  };
  if (text.size() > most_characters) {
    report(0, fmt::format("the expression has {} characters", text.size()), fmt::format("at most {}", most_characters));
    return result;
  }
  // Whose messages would show nothing of them, or end there.
  const auto is_control = [](char c) {
    return (c >= '\0' && c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == '\x7f';
  };
  if (const auto found = std::ranges::find_if(text, is_control); found != text.end()) {
    report(static_cast<std::size_t>(found - text.begin()),
           fmt::format("the control character {:#04x} stands in the text", static_cast<int>(*found)), "");
    return result;
  }
  try {
    result.value = Parser(text, use, parameters).run();
  } catch (Wrong& found) {
    report(found.offset, std::move(found.what), std::move(found.fix));
  }
  return result;
}

}  // namespace attune::expression
