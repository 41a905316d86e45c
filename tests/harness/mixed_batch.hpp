// Ragged batches in which some sequences have few queries and others many.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/harness/call_image.hpp"

namespace attune::testing {

struct MixedBatch {
  std::vector<std::int32_t> queries;  ///< of each sequence
  std::vector<std::int32_t> keys;

  /// The problem with what follows from the lengths.
  [[nodiscard]] Problem problem(Problem problem) const;

  /// Keys one sequence after the other. `used`: the sequences' seqused_q and seqused_k.
  [[nodiscard]] CallImage contiguous(Problem problem, Sequences used = {}) const;

  /// Or in pages, the last one first.
  [[nodiscard]] CallImage in_pages(Problem problem, int page_size) const;
};

}  // namespace attune::testing
