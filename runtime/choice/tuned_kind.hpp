// What a row of a tuned table has in common with the problems that it may answer for, by operation.
#pragma once

#include <tuple>

#include "runtime/operations/backward/problem.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// With another of these other kernels come into question. Tables are sorted by them first.
inline auto kind_of(const Problem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.head_dim_of_v(), problem.causal, has_window(problem),
                    problem.softcap > 0, problem.ragged, problem.paged, problem.dropout);
}

inline auto kind_of(const DecodeProblem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.window_left >= 0, problem.softcap > 0, problem.rotary,
                    problem.paged(), problem.one_length(), problem.ragged, problem.packed_keys, problem.splits);
}

inline auto kind_of(const BackwardProblem& problem) {
  return std::tuple_cat(kind_of(problem.attention()), std::tuple(problem.any_order));
}

/// No sequence has more keys.
template <class P>
int most_keys(const P& problem) {
  if constexpr (requires { problem.max_seqlen_k; }) {
    return problem.max_seqlen_k;
  } else {
    return problem.seqlen_k;
  }
}

}  // namespace attune
