// A problem's fields as JSON, for the files that keep problems: records and tuned tables.
#pragma once

#include <limits>
#include <optional>
#include <type_traits>

#include "generator/json_fields.hpp"
#include "runtime/call/problem_fields.hpp"

namespace attune {

/// The type of a field of a table, however the field is passed.
template <class AnyField>
using ValueOf = typename std::remove_cvref_t<AnyField>::ValueType;

/// A value as a number, a truth value or a word.
template <class Value>
Json value_json(Value value) {
  if constexpr (std::is_enum_v<Value>) {
    return value_text(value);
  } else {
    return value;
  }
}

/// Reads such a value, a whole number from `least` to `most`; where it is `optional` and missing `value` stays.
template <class P, class Value>
void read_json(JsonFields& object, const ProblemField<P, Value>& field, const char* key, bool optional, Value& value,
               int least = std::numeric_limits<int>::min(), int most = std::numeric_limits<int>::max()) {
  const auto usual = [&](auto as) { return optional ? std::optional(static_cast<decltype(as)>(value)) : std::nullopt; };
  if constexpr (std::is_enum_v<Value>) {
    value = static_cast<Value>(object.value_of(*find_field(field.key), usual(int())));
  } else if constexpr (std::is_same_v<Value, int>) {
    value = object.integer(key, least, most, usual(int()));
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = object.flag(key, value);
  } else {
    constexpr Value largest = std::numeric_limits<Value>::max();
    value = static_cast<Value>(object.number(key, -largest, largest, usual(double())));
  }
}

}  // namespace attune
