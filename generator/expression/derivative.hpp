// Whether a score's expression only adds to s, so that gradients pass it as they are.
#pragma once

#include "generator/expression/language.hpp"

namespace attune::expression {

/// Whether its derivative by s is one wherever s is: s plus, or chosen among such sums by, what does not depend on s.
bool has_unit_slope(const Expression& score);

}  // namespace attune::expression
