// Problems of one input as they are gathered: no more than a person reads.
#pragma once

#include <vector>

#include "generator/diagnostic.hpp"

namespace attune {

/// Of one input; a hostile file could have millions.
inline constexpr std::size_t most_problems = 200;

/// Whether nothing more is added.
inline bool is_full(const std::vector<Diagnostic>& problems) { return problems.size() > most_problems; }

/// Adds a problem; in place of the first one too many, that there are more.
void add_problem(std::vector<Diagnostic>& problems, Diagnostic problem);

}  // namespace attune
