// What tables and the tuner ask of decode's problems (runtime/call/tuning.hpp).
#pragma once

#include <tuple>

#include "runtime/call/tuning.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune {

inline auto kind_of(const DecodeProblem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.window_left >= 0, problem.softcap > 0, problem.rotary,
                    problem.paged(), problem.one_length(), problem.ragged, problem.packed_keys, problem.splits);
}

DecodeProblem without_idle_bounds(DecodeProblem problem);
TileSizes tile_sizes_of(const DecodeProblem& problem);
Work launch_work(const DecodeProblem& problem);
double largest_operand(const DecodeProblem& problem);

}  // namespace attune
