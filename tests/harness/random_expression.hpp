// Expressions of scores and masks as people might write them, and what their parameters hold.
#pragma once

#include <string>

#include "generator/expression/language.hpp"
#include "runtime/base/random.hpp"

namespace attune::testing {

/// A text that parses, for either use: of few operations, whose values stay near those of scores. Conditions compare
/// integers alone, on which hosts and kernels never differ.
std::string random_expression(Random& random, expression::Use use);

/// The same of a score that gradients pass as they are: s plus what does not depend on it.
std::string random_additive_score(Random& random);

/// How many random expressions a test tries, each of which takes a compilation or two: 24, or as many as
/// ATTUNE_TEST_EXPRESSIONS says.
int expression_count();

}  // namespace attune::testing
