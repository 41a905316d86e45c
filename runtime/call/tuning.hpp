// What tables of tuned problems and the tuner ask of a problem. An operation that tables have rows for answers in its
// tuning.hpp, by overloads of
//
//   kind_of()             what decides which kernels come into question; tables are sorted by it first
//   without_idle_bounds() the problem without bounds of its window that hide nothing; the one here serves problems with
//                         seqlen_q and seqlen_k
//   tile_sizes_of()       how far a table's row is away
//   launch_work()         how fast a kernel is, and how long one takes that nobody has timed
//   largest_operand()     elements of its largest operand, in floating point, where a product of sizes does not wrap
#pragma once

#include <algorithm>

#include "runtime/call/window.hpp"

namespace attune {

/// What of a problem's sizes fills a tile, and what the tile's steps are.
struct TileSizes {
  long long tile_rows;
  long long steps;
  long long sequences;
  int page_size = 1;
};

/// Floating point operations, or bytes, of a launch, and about half of what kernels reach of a GPU's peak.
struct Work {
  double amount;
  bool is_bytes;
  double part_of_peak;
};

/// Keys that a query sees, of so many, or queries that see a key; -1 is a bound that hides none.
constexpr long long seen_in_window(long long all, int left, int right) {
  if (left < 0 || right < 0) return all;
  return std::min(all, static_cast<long long>(left) + right + 1);
}

template <class P>
P without_idle_bounds(P problem) {
  set_window(problem, problem.window_left, problem.window_right);
  return problem;
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
