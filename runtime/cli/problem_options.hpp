// Options for the fields of a problem, by its table.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <type_traits>

#include "generator/command_words.hpp"
#include "generator/variant.hpp"
#include "runtime/call/problem_fields.hpp"

namespace attune::cli {

/// "--heads-q"
template <class P, class Value>
std::string option_name(const ProblemField<P, Value>& field) {
  std::string name = std::string("--") + field.row_key();
  std::ranges::replace(name, '_', '-');
  return name;
}

/// An option that sets a field of `problem`, which outlives the parser. Its help shows the value that the problem has,
/// unless that is left_out.
template <class P, class Value>
CLI::Option* add_field_option(CLI::App& app, const char* group, const ProblemField<P, Value>& field, P& problem) {
  Value& value = problem.*field.member;
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<Value, bool>) {
    option = app.add_flag(option_name(field), value, field.doc);
  } else if constexpr (std::is_enum_v<Value>) {
    const Field& choices = *find_field(field.key);
    const auto set = [&value, &choices](const std::string& word) {
      value = static_cast<Value>(parse_value(choices, word).value_or(0));
    };
    option = app.add_option_function<std::string>(option_name(field), set, field.doc)
                 ->check(one_of(accepted_words(choices)))
                 ->default_str(value_text(value));
  } else {
    option = app.add_option(option_name(field), value, field.doc);
    if (value != static_cast<Value>(left_out)) option->capture_default_str();
  }
  return option->group(group);
}

}  // namespace attune::cli
