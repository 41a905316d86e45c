// From text to a checked expression.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "generator/diagnostic.hpp"
#include "generator/expression/language.hpp"

namespace attune::expression {

/// Parses "s + slope[h] * (k - p)", whose parameters are those given or follow it: "... where slope: fp32[head]".
/// Arithmetic + - * / (of reals), // and % (of integers, rounded down), comparisons, and, or, not, min, max, abs, exp2,
/// log2, tanh, real, select(condition, yes, no), and inf, a real; precedence as in Python. What is wrong has the place
/// of `where`, moved by its line and column in the text: an unknown name, a type, an integer that may leave 32 bits, a
/// divisor that may be 0, an index that cannot be in range, a limit of language.hpp.
Result<Expression> parse(std::string_view text, Use use, std::span<const Parameter> parameters = {},
                         const Location& where = {"expression", 1, 1});

/// The same of a text that stands elsewhere with other line breaks: `place_of` says where each of its bytes does.
Result<Expression> parse(std::string_view text, Use use, std::span<const Parameter> parameters,
                         const std::function<Location(std::size_t)>& place_of);

/// Whether a parameter may have this name: a word that is no other's.
bool is_parameter_name(std::string_view word);

/// The dimension of that word or number, or nothing.
bool parse_dimension(std::string_view word, Dimension& dimension);

}  // namespace attune::expression
