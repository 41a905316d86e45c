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

/// What a mask or a score, of numbers that number_of() gave, says that kernels have a faster way to do
/// (generator/expression/limits.hpp): known from the first time on. Thread-safe.
struct NumberedLimits {
  int left = -1;   ///< as MaskLimits has them
  int right = -1;  ///< likewise
  int rest = 0;    ///< the number of what they leave to say; 0: nothing
};
NumberedLimits limits_of_number(int mask);
float softcap_of_number(int score);

/// The number of what a text says (parse.hpp), nothing where it is wrong; 0 of "none".
std::optional<int> number_of_text(std::string_view text, Use use);

/// "none" of 0, else the expression's text.
std::string_view text_of_number(int number);

}  // namespace attune::expression
