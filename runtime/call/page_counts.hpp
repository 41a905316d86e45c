// Numbers of pages and rows that follow from a problem's sizes. Each stops at what a field may be or at what an int
// holds, where a product that wrapped might pass a check.
#pragma once

#include <algorithm>
#include <limits>

#include "runtime/call/field_checks.hpp"

namespace attune {

/// Pages of so many tokens, at least one, that hold so many keys.
inline int pages_of(int keys, int page_size) {
  return static_cast<int>((static_cast<long long>(keys) + page_size - 1) / page_size);
}

/// Those of a whole batch.
inline int all_pages(int batch, int table_width) {
  constexpr long long most = std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp(static_cast<long long>(batch) * table_width, -most, most));
}

/// Rows of a ragged batch whose sequences are all as long as the longest, inside what lengths may be: what a problem
/// that names no total has, in a table or a list.
inline int longest_total(int batch, int seqlen) {
  return static_cast<int>(std::clamp<long long>(static_cast<long long>(batch) * seqlen, 0, most_rows));
}

/// The columns of a key that a rotation takes at most.
inline int most_rotated(int head_dim) { return head_dim / rotary_dim_step * rotary_dim_step; }

}  // namespace attune
