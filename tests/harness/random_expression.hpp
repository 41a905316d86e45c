// Expressions of scores and masks as people might write them, and what their parameters hold.
#pragma once

#include <string>

#include "generator/expression/evaluate.hpp"
#include "runtime/base/random.hpp"
#include "runtime/call/expressions.hpp"

namespace attune::testing {

/// A text that parses, for either use: of few operations, whose values stay near those of scores. Conditions compare
/// integers alone, on which hosts and kernels never differ.
std::string random_expression(Random& random, expression::Use use);

/// Values for one of its parameters in a problem of these extents; integers are small, so that they meet.
expression::Array random_array(Random& random, const expression::Parameter& parameter,
                               const ExpressionExtents& extents);

}  // namespace attune::testing
