#include "generator/condition.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "generator/constant.hpp"
#include "generator/expression/derivative.hpp"
#include "generator/expression/interval.hpp"
#include "generator/expression/limits.hpp"
#include "generator/expression/pool.hpp"

namespace attune {
namespace {

using Value = std::optional<long long>;

/// The knob whose values are words of this type, `Dtype` or `Rotary`.
const Field* field_of_type(std::string_view type) {
  const auto found = std::ranges::find_if(
      fields(), [&](const Field& field) { return field.kind == FieldKind::choice && constant_type(field) == type; });
  return found == fields().end() ? nullptr : &*found;
}

/// How strongly an operator of two operands binds; 0 where it is none.
int strength(std::string_view sign) {
  if (sign == "||") return 1;
  if (sign == "&&") return 2;
  if (sign == "==" || sign == "!=") return 3;
  if (sign == "<" || sign == "<=" || sign == ">" || sign == ">=") return 4;
  if (sign == "+" || sign == "-") return 5;
  return sign == "*" || sign == "/" || sign == "%" ? 6 : 0;
}

Value combined(std::string_view sign, Value a, Value b) {
  if (sign == "&&" && ((a && *a == 0) || (b && *b == 0))) return 0;
  if (sign == "||" && ((a && *a != 0) || (b && *b != 0))) return 1;
  if (!a || !b) return std::nullopt;
  if (sign == "&&" || sign == "||") return sign == "&&" ? 1 : 0;  // the operands that decide are dealt with
  if (sign == "==") return *a == *b;
  if (sign == "!=") return *a != *b;
  if (sign == "<") return *a < *b;
  if (sign == "<=") return *a <= *b;
  if (sign == ">") return *a > *b;
  if (sign == ">=") return *a >= *b;
  if (sign == "+") return *a + *b;
  if (sign == "-") return *a - *b;
  if (sign == "*") return *a * *b;
  if (*b == 0) return std::nullopt;
  return sign == "/" ? *a / *b : *a % *b;
}

class Evaluator {
 public:
  Evaluator(std::span<const Token> tokens, const TemplateFile& file, const Constants& constants, const Variant& variant)
      : tokens_(tokens), file_(file), constants_(constants), variant_(variant) {}

  Result<Value> run() && {
    result_.value = binary(1);
    if (next_ != tokens_.size()) result_.value.reset();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool at(std::string_view text) const { return next_ < tokens_.size() && tokens_[next_].is(text); }

  Value binary(int weakest) {
    Value value = unary();
    while (next_ < tokens_.size()) {
      const std::string_view sign = tokens_[next_].text;
      const int binds = strength(sign);
      if (binds < weakest) break;
      ++next_;
      value = combined(sign, value, binary(binds + 1));
    }
    return value;
  }

  Value unary() {
    if (at("!") || at("-")) {
      const bool negates = at("!");
      ++next_;
      const Value value = unary();
      if (!value) return value;
      return negates ? (*value == 0 ? 1 : 0) : -*value;
    }
    if (at("(")) {
      ++next_;
      const Value value = binary(1);
      if (!at(")")) return std::nullopt;
      ++next_;
      return value;
    }
    return name();
  }

  /// A number, true, false, variant::key, Expressions::tilts, told or first_keys, Type::word or a constant of the file;
  /// anything else is stepped over, with what it is called with.
  Value name() {
    if (next_ == tokens_.size()) return std::nullopt;
    const Token& first = tokens_[next_++];
    if (first.is("true") || first.is("false")) return first.is("true") ? 1 : 0;
    long long number = 0;
    const char* const end = first.text.data() + first.text.size();
    if (std::from_chars(first.text.data(), end, number).ptr == end) return number;
    if (!at("::")) return constant(first);
    if (next_ + 1 >= tokens_.size()) return other_name();
    const Token& second = tokens_[next_ + 1];
    next_ += 2;
    if (first.is("variant")) {
      const Field* const field = find_field(second.text);
      return field == nullptr ? Value{0} : Value{variant_.*field->member};  // an unknown one is told of where it stands
    }
    if (first.is("Expressions") && second.is("tilts")) return tilts_scores(variant_) ? 1 : 0;
    if (first.is("Expressions") && second.is("told")) return tells_blocks(variant_) ? 1 : 0;
    if (first.is("Expressions") && second.is("first_keys")) return first_keys_apart(variant_);
    const Field* const field = field_of_type(first.text);
    return field == nullptr ? other_name() : word_of(*field, second);
  }

  /// One that the file defines before this place, or another name.
  Value constant(const Token& name) {
    const auto found = constants_.find(name.text);
    if (found == constants_.end() || found->second.front().offset >= name.offset) return other_name();
    Result<Value> result = Evaluator(found->second, file_, constants_, variant_).run();
    std::ranges::move(result.problems, std::back_inserter(result_.problems));
    return result.value;
  }

  /// A name that is not the variant's, whose value is not known here: stepped over, with its members and arguments.
  Value other_name() {
    while (next_ < tokens_.size()) {
      if (at("(")) {
        int depth = 0;
        do {
          if (at("(")) ++depth;
          if (at(")")) --depth;
          ++next_;
        } while (depth > 0 && next_ < tokens_.size());
      } else if (at("::") || at(".")) {
        next_ += 2;
      } else {
        break;
      }
    }
    return std::nullopt;
  }

  Value word_of(const Field& field, const Token& word) {
    for (std::size_t i = 0; i < field.choices.size(); ++i) {
      if (field.choices[i] == word.text) return static_cast<long long>(i);
    }
    const std::string near = nearest_word(std::string{word.text}, {field.choices.begin(), field.choices.end()});
    result_.problems.push_back({file_.at_offset(word.offset),
                                fmt::format("{} is never {}::{}", field.key, constant_type(field), word.text),
                                near.empty() ? "it is " + accepted_values(field)
                                             : fmt::format("did you mean {}::{}?", constant_type(field), near)});
    return std::nullopt;
  }

  std::span<const Token> tokens_;
  const TemplateFile& file_;
  const Constants& constants_;
  const Variant& variant_;
  std::size_t next_ = 0;
  Result<Value> result_;
};

/// Whether the token at `name` may be a declaration's name, of what a condition may ask: it follows a type's.
bool may_be_declared(const std::vector<Token>& tokens, std::size_t name) {
  if (name == 0 || tokens[name].kind != Token::Kind::word) return false;
  return tokens[name - 1].kind == Token::Kind::word && !tokens[name - 1].is("return");
}

/// Whether the name at `name` is that of a constant's definition: `constexpr int name =`, without `template <...>`.
bool is_constant(const std::vector<Token>& tokens, std::size_t name) {
  if (name < 2 || name + 1 >= tokens.size() || !tokens[name + 1].is("=")) return false;
  if (!tokens[name - 2].is("constexpr") || !(tokens[name - 1].is("bool") || tokens[name - 1].is("int"))) return false;
  return name == 2 || tokens[name - 3].is(";") || tokens[name - 3].is("}") ||
         tokens[name - 3].kind == Token::Kind::directive;
}

}  // namespace

bool tilts_scores(const Variant& variant) {
  return variant.family == prefill_sm90 && variant.score != 0 &&
         expression::added_by_key(expression::expression_of(variant.score)).has_value();
}

bool tells_blocks(const Variant& variant) {
  return variant.mask != 0 && expression::bounds_by_lookups(expression::expression_of(variant.mask));
}

int first_keys_apart(const Variant& variant) {
  const bool has_others = variant.score != 0 || variant.dropout != 0 || variant.paged != 0;
  if (variant.P_residual_keys != 0) return 0;  // of the block whose keys are the first, which the product is behind
  if (variant.family != prefill_sm90 || variant.mask == 0 || has_others || tells_blocks(variant)) return 0;
  const std::optional<expression::FirstKeys> first = expression::first_keys_of(expression::expression_of(variant.mask));
  return first ? first->count : 0;
}

Constants constants_of(const std::vector<Token>& tokens) {
  Constants constants;
  std::set<std::string_view> declared;
  for (std::size_t i = 0, depth = 0; i < tokens.size(); ++i) {
    if (tokens[i].is("{")) ++depth;
    if (tokens[i].is("}")) --depth;
    if (!may_be_declared(tokens, i)) continue;
    constants.erase(tokens[i].text);
    if (!declared.insert(tokens[i].text).second || depth > 0 || !is_constant(tokens, i)) continue;
    const auto value = tokens.begin() + static_cast<std::ptrdiff_t>(i) + 2;
    const auto end = std::find_if(value, tokens.end(), [](const Token& token) { return token.is(";"); });
    if (end != value) constants.emplace(tokens[i].text, std::span(value, end));
  }
  return constants;
}

Result<std::optional<long long>> value_of(std::span<const Token> expression, const TemplateFile& file,
                                          const Constants& constants, const Variant& variant) {
  return Evaluator(expression, file, constants, variant).run();
}

}  // namespace attune
