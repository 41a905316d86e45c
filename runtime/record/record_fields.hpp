// A record's line and the fields of a problem: written, read, and sizes told from the rest, by the problem's table.
#pragma once

#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "generator/expression/pool.hpp"
#include "generator/variant.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/call/problem_json.hpp"

namespace attune {

/// A problem that may have a score, a mask and sinks.
template <class P>
concept Expressed = requires(const P& problem) {
  problem.expressions;
};

/// Adds a problem's fields to a line, expressions as their texts.
template <class P>
void add_record_fields(Json& line, const P& problem) {
  const P usual;
  for_each_field<P>([&](const auto& field) {
    const auto& value = problem.*field.member;
    if (field.is_always_recorded() || value != usual.*field.member) line[field.key] = value_json(value);
  });
  if constexpr (Expressed<P>) {
    const auto& [score, mask, sink] = problem.expressions;
    if (score != 0) line["score"] = expression::text_of_number(score);
    if (mask != 0) line["mask"] = expression::text_of_number(mask);
    if (sink != 0) line["sink"] = true;
  }
}

/// The number of a text, which may be spelled in any way; 0 where there is none.
inline int recorded_expression(JsonFields& line, std::string_view key, expression::Use use) {
  const Json* const text = line.find(key);
  if (text == nullptr) return 0;
  if (text->is_string()) {
    if (const auto number = expression::number_of_text(text->get<std::string>(), use)) return *number;
  }
  line.problem(fmt::format("{} is no expression that is understood", key), accepted_values(*find_field(key)));
  return 0;
}

/// Reads them; what a line may leave out is as usual.
template <class P>
P read_record_fields(JsonFields& line) {
  P problem;
  for_each_field<P>([&](const auto& field) {
    read_json(line, field, field.key, !field.is_always_recorded(), problem.*field.member);
  });
  if constexpr (Expressed<P>) {
    problem.expressions.score = recorded_expression(line, "score", expression::Use::score);
    problem.expressions.mask = recorded_expression(line, "mask", expression::Use::mask);
    problem.expressions.sink = line.flag("sink") ? 1 : 0;
    if (std::string conflict = conflict_of(problem.expressions); !conflict.empty()) line.problem(std::move(conflict));
    if constexpr (requires { problem.causal; }) take_limits(problem);  // as a call does
  }
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
