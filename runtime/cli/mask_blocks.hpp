// Which blocks of keys the tiles of a problem read and mask, and a picture of it.
#pragma once

#include <string>
#include <vector>

#include "generator/expression/interval.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune::cli {

/// Of the blocks of B_c keys that each tile of B_r queries could read, as its kernel decides it: by ranges of
/// positions, for all sequences and heads alike.
struct MaskBlocks {
  int tiles = 0;                              ///< of a head
  int blocks = 0;                             ///< of keys
  std::vector<expression::Visibility> cells;  ///< tiles x blocks
  bool are_told = false;                      ///< the call's arrays decide further blocks, which a launch tells

  [[nodiscard]] double share(expression::Visibility which) const;

  /// "12.5% dead, 37.5% full, 50.0% partial" and a line for each tile or few of them: '.' dead, '#' full, '+' partial
  [[nodiscard]] std::string text() const;
};

/// Of the longest sequence, by its mask and its expression. Nothing where there are more than a few million cells.
MaskBlocks mask_blocks(const Problem& problem, int B_r, int B_c);

}  // namespace attune::cli
