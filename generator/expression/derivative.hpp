// Whether a score's expression only adds to s, so that gradients pass it as they are, and what each key adds.
#pragma once

#include <optional>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// Whether its derivative by s is one wherever s is: s plus, or chosen among such sums and -inf by, what does not
/// depend on s.
bool has_unit_slope(const Expression& score);

/// What a score adds to s for a key more than for the key before it, where that is the same for all keys of a row, as
/// slope[h] is in `s + slope[h] * (k - p)`: a real without s and k. Nothing where it is not, is not seen to be, or is
/// nothing.
std::optional<Node> added_by_key(const Expression& score);

}  // namespace attune::expression
