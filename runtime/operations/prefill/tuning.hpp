// What tables and the tuner ask of prefill's problems, whose tiles are of queries (runtime/call/tuning.hpp).
#pragma once

#include <tuple>

#include "runtime/call/tuning.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

inline auto kind_of(const Problem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.head_dim_of_v(), problem.causal, has_window(problem),
                    problem.softcap > 0, problem.ragged, problem.paged, problem.dropout);
}

TileSizes tile_sizes_of(const Problem& problem);
Work launch_work(const Problem& problem);
double largest_operand(const Problem& problem);

/// Floating point operations of so many products of a query and a key, with so many columns in all.
double products_of(const Problem& problem, int columns);

}  // namespace attune
