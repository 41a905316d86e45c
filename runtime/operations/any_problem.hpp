// The operations that callers ask for: the one list of their problems.
#pragma once

#include <variant>

#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

/// A problem of any of them.
using AnyProblem = std::variant<Problem, DecodeProblem, StoreProblem, MergeProblem, CheckProblem>;

}  // namespace attune
