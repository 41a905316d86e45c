// An explanation for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/choice/explanation.hpp"

namespace attune {

/// {problem, device, served, variant, source, grid, threads, ..., tuned, frozen, passed_over, considered}. A launch
/// before or after the main one has its role for a key: "combine" and "combine_grid".
nlohmann::ordered_json explanation_json(const Explanation& explanation);

}  // namespace attune
