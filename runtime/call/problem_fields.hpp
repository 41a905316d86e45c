// A problem's fields as one table, from which follow its text, the checks of single fields, its line in a record, its
// row in a tuned table, its keys in a list of problems and its options on the command line.
//
// An operation has its table in its own folder: a function `problem_fields(const P*)` that returns a tuple of field()s
// in the order of a record's line. What relates fields to each other stays code: P's own functions and problems_of().
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"
#include "runtime/call/field_checks.hpp"

namespace attune {

/// How a field behaves in a record.
enum class RecordRole {
  named,   ///< every line has it
  size,    ///< so it is, and sizes that are near count as one
  option,  ///< left out where it has its usual value
  extent,  ///< a size that is left out so
};

/// How in a tuned table, and in a list of problems to tune.
enum class RowRole {
  absent,    ///< it does not matter for which kernel is fastest, or follows from others
  required,  ///< every row of a table has it
  optional,  ///< left out where a text leaves it out
};

/// What a field is about; texts and rows are sorted by it.
enum class Topic { kind, batch, heads, lengths, mask, cache, feature };

/// What a field is to those who check, sort and keep problems.
struct FieldRoles {
  Topic topic = Topic::feature;
  RecordRole record = RecordRole::option;
  RowRole row = RowRole::absent;
  FieldRange range = {};
};

/// How a field of Owner is shown.
template <class Owner>
struct FieldText {
  const char* tag = nullptr;   ///< what stands before its value in a text, with a space of its own; null: no text
  const char* name = nullptr;  ///< in rows, lists and options, where it is not the key
  const char* doc = nullptr;   ///< of its option; null: it has none
  bool (*applies)(const Owner&) = nullptr;  ///< elsewhere its value says nothing and may be anything; null: everywhere
  bool (*shown)(const Owner&) = nullptr;    ///< where texts and rows have it; null: see ProblemField::is_shown()
};

/// One row of the table.
template <class Owner, class Value>
struct ProblemField : FieldRoles, FieldText<Owner> {
  using ValueType = Value;

  const char* key;  ///< the name of the member, and of the C struct's
  Value Owner::*member;

  [[nodiscard]] constexpr bool applies_to(const Owner& problem) const {
    return this->applies == nullptr || this->applies(problem);
  }

  /// Whether texts and rows have the field: by default where it applies and, of fields that always do and that a record
  /// may leave out, where it is not as usual.
  [[nodiscard]] bool is_shown(const Owner& problem) const {
    if (!applies_to(problem)) return false;
    if (this->shown != nullptr) return this->shown(problem);
    return this->applies != nullptr || is_always_recorded() || problem.*member != Owner().*member;
  }

  [[nodiscard]] constexpr bool is_always_recorded() const {
    return record == RecordRole::named || record == RecordRole::size;
  }

  [[nodiscard]] constexpr bool is_size() const { return record == RecordRole::size || record == RecordRole::extent; }

  [[nodiscard]] constexpr const char* row_key() const { return this->name == nullptr ? key : this->name; }
};

template <class Owner, class Value>
constexpr ProblemField<Owner, Value> field(const char* key, Value Owner::*member, FieldRoles roles,
                                           FieldText<Owner> text = {}) {
  return {roles, text, key, member};
}

/// The table of a problem type.
template <class P>
inline constexpr auto fields_of = problem_fields(static_cast<const P*>(nullptr));

/// Calls `visit` with each field of the table, in its order.
template <class P, class Visitor>
void for_each_field(Visitor&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields_of<P>);
}

/// What a list of problems, a row or a command line leaves out for P::complete() to fill in.
inline constexpr int left_out = std::numeric_limits<int>::min();

/// Gives a field that was left out its value.
inline void fill(int& value, int otherwise) {
  if (value == left_out) value = otherwise;
}

/// The word of a problem's operation.
template <class List>
std::string_view word_of(const List& problem) {
  return std::visit([](const auto& one) { return std::string_view(one.word); }, problem);
}

/// A problem of each operation of a list, which is a std::variant of their types.
template <class... Ps>
std::vector<std::variant<Ps...>> each_operation(const std::variant<Ps...>& /*list*/) {
  return {Ps()...};
}

/// The one whose word this is; null where it is none's.
template <class List>
const List* find_operation(const std::vector<List>& each, std::string_view word) {
  const auto found = std::ranges::find(each, word, [](const List& one) { return word_of(one); });
  return found == each.end() ? nullptr : &*found;
}

/// Their words as a message has them: "prefill, decode or store_kv".
template <class List>
std::string operations_text(const std::vector<List>& each) {
  std::vector<std::string> words;
  for (const List& one : each) words.emplace_back(word_of(one));
  return alternatives_text(words);
}

/// A value as texts have it: nothing for a flag, whose tag says it.
std::string value_text(int value);
std::string value_text(float value);
std::string value_text(Dtype value);
std::string value_text(Rotary value);
inline std::string value_text(bool /*value*/) { return {}; }

/// A part of a text, with what sorts it.
using TextPart = std::pair<Topic, std::string>;

/// The parts after the operation's word: what kind of problem it is, its sizes, then the rest in the table's order.
std::string joined(std::string_view word, std::vector<TextPart> parts);

/// The text() of a problem: "store_kv bf16 d128 b2 hk8 t16 pages100 page16".
template <class P>
std::string text_of(const P& problem, std::string_view word = P::word) {
  std::vector<TextPart> parts;
  for_each_field<P>([&](const auto& field) {
    if (field.tag == nullptr || !field.is_shown(problem)) return;
    parts.emplace_back(field.topic, field.tag + value_text(problem.*field.member));
  });
  return joined(word, std::move(parts));
}

/// The checks of each field by itself, where it applies.
template <class P>
FieldChecks checked_fields(const P& problem) {
  FieldChecks checks;
  for_each_field<P>([&](const auto& field) {
    if (field.applies_to(problem)) checks.value(field.key, field.range, problem.*field.member);
  });
  return checks;
}

}  // namespace attune
