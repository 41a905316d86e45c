// What tables and the tuner ask of problems of gradients, whose tiles are of keys (runtime/call/tuning.hpp).
#pragma once

#include <tuple>

#include "runtime/call/tuning.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "runtime/operations/prefill/tuning.hpp"

namespace attune {

inline auto kind_of(const BackwardProblem& problem) {
  return std::tuple_cat(kind_of(problem.attention()), std::tuple(problem.any_order));
}

TileSizes tile_sizes_of(const BackwardProblem& problem);
Work launch_work(const BackwardProblem& problem);
double largest_operand(const BackwardProblem& problem);

}  // namespace attune
