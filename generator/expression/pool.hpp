// Expressions as numbers, which values that must be small and quick to compare (Variant, Need, problems) hold.
#pragma once

#include <optional>
#include <string_view>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// The number of an expression, from 1 on: the same for all of one use and text in this process, and in no other.
int number_of(const Expression& expression);

/// Whether number_of() gave this number to an expression of that use.
bool is_number(int number, Use use);

/// The expression of a number that number_of() gave. It stays as long as the process. Thread-safe, as both are.
const Expression& expression_of(int number);

/// The number of what a text says (parse.hpp), nothing where it is wrong; 0 of "none".
std::optional<int> number_of_text(std::string_view text, Use use);

/// "none" of 0, else the expression's text.
std::string_view text_of_number(int number);

}  // namespace attune::expression
