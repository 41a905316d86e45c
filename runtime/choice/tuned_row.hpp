// The problem of a tuned table's row, written and read by the problem's table of fields.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/call/problem_json.hpp"

namespace attune {

/// Whether a row of this problem has the field.
template <class P, class Value>
bool in_row(const ProblemField<P, Value>& field, const P& problem) {
  return field.row == RowRole::required || (field.row == RowRole::optional && field.is_shown(problem));
}

/// A problem as a row has it: the operation; what every row has; what may be left out. Numbers, words and truth values;
/// of a float it has whether it is above 0.
template <class P>
Json row_of(const P& problem) {
  std::map<std::tuple<bool, Topic, std::size_t>, std::pair<const char*, Json>> sorted;
  for_each_field<P>([&](const auto& field) {
    if (!in_row(field, problem)) return;
    const auto value = problem.*field.member;
    const Json json =
        std::is_same_v<ValueOf<decltype(field)>, float> ? Json(value > decltype(value)()) : value_json(value);
    sorted.emplace(std::tuple(field.row == RowRole::optional, field.topic, sorted.size()),
                   std::pair(field.row_key(), json));
  });
  Json row{{"operation", P::word}};
  for (const auto& [place, value] : sorted) row[value.first] = value.second;
  return row;
}

/// Reads what a row has of a problem; what it may leave out stays.
template <class P>
void read_row(JsonFields& row, P& problem) {
  for_each_field<P>([&](const auto& field) {
    if (field.row == RowRole::absent) return;
    auto& value = problem.*field.member;
    if constexpr (std::is_same_v<ValueOf<decltype(field)>, float>) {
      value = row.flag(field.row_key()) ? 1 : 0;
    } else {
      // The usual value of what may be left out is none: -1, 0 or a size that others say.
      const int least = std::min(1, static_cast<int>(P().*field.member) + 1);
      read_json(row, field, field.row_key(), field.row == RowRole::optional, value, least,
                std::min(field.range.maximum, most_rows));
    }
  });
}

/// The problem with what its row has, and the rest as P::complete() has it: what a table cannot tell apart becomes
/// equal.
template <class P>
P as_row(const P& problem) {
  P result = P::usual();
  for_each_field<P>([&](const auto& field) {
    if (!in_row(field, problem)) return;
    const auto value = problem.*field.member;
    result.*field.member = std::is_same_v<ValueOf<decltype(field)>, float> ? ValueOf<decltype(field)>(1) : value;
  });
  result.complete();
  return result;
}

}  // namespace attune
