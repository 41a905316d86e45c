// The operations that tables of tuned problems have rows for.
#pragma once

#include <variant>

#include "runtime/operations/backward/tuning.hpp"
#include "runtime/operations/decode/tuning.hpp"
#include "runtime/operations/prefill/tuning.hpp"

namespace attune {

/// A problem of any of them, in the order of a table; tables have what tuned_problem() returns (choice/tuned.hpp).
using TunedProblem = std::variant<Problem, DecodeProblem, BackwardProblem>;

}  // namespace attune
