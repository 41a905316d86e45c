// A record's line and the fields of a problem: written, read, and sizes told from the rest, by the problem's table.
#pragma once

#include <bit>

#include "runtime/call/problem_json.hpp"

namespace attune {

/// Adds a problem's fields to a line.
template <class P>
void add_record_fields(Json& line, const P& problem) {
  const P usual;
  for_each_field<P>([&](const auto& field) {
    const auto& value = problem.*field.member;
    if (field.is_always_recorded() || value != usual.*field.member) line[field.key] = value_json(value);
  });
}

/// Reads them; what a line may leave out is as usual.
template <class P>
P read_record_fields(JsonFields& line) {
  P problem;
  for_each_field<P>([&](const auto& field) {
    read_json(line, field, field.key, !field.is_always_recorded(), problem.*field.member);
  });
  return problem;
}

/// The problem with its sizes rounded down to powers of two: what problems have in common that count as one. -1, which
/// is unlimited, and 0, which is none, stay.
template <class P>
P with_rounded_sizes(P problem) {
  for_each_field<P>([&](const auto& field) {
    if constexpr (std::is_same_v<ValueOf<decltype(field)>, int>) {
      int& size = problem.*field.member;
      if (field.is_size() && size > 0) size = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
    }
  });
  return problem;
}

}  // namespace attune
