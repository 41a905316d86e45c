// One call of merge_states as host memory, and what a correct one leaves there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "tests/harness/placed_tensor.hpp"

namespace attune::testing {

/// A problem and what decides about its memory.
struct MergeCase {
  MergeProblem problem;
  int in_place = 0;                       ///< 1 or 2: O is that of this result
  bool has_lse = true;                    ///< somebody asks for it
  std::array<bool, 3> heads_outermost{};  ///< of O1, O2 and O

  [[nodiscard]] std::string text() const;
};

/// A case of any kind that merge_states serves.
MergeCase random_merge_case(Random& random);

/// What surrounds each tensor is NaN, and so are O and LSE.
class MergeImage {
 public:
  MergeImage(const MergeCase& one, std::uint64_t seed);

  [[nodiscard]] const MergeProblem& problem() const { return case_.problem; }

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is.
  [[nodiscard]] attune_merge_states_args args(void* memory) const;

  /// CHECKs that O and LSE agree with the formula in float64, and that nothing else was written.
  void check(Memory after) const;

 private:
  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] std::size_t lse_offset(int sequence, int row, int head) const;

  /// Of this case; of its O the place that it is written to.
  [[nodiscard]] std::size_t written() const { return case_.in_place == 0 ? 2 : case_.in_place - 1; }

  MergeCase case_;
  std::array<PlacedTensor, 3> o_;  ///< O1, O2 and O, which is not used in place
  std::array<std::size_t, 3> lse_place_{};
  std::array<std::vector<float>, 2> lse_;  ///< of the two results
  Memory memory_;
};

}  // namespace attune::testing
