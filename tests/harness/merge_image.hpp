// One call of merge_states as host memory, and what a correct one leaves there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/store/problem.hpp"

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

/// The memories of a call. What surrounds each tensor is NaN, and so are O and LSE before it.
struct MergeMemory {
  std::array<std::vector<std::uint16_t>, 3> o;  ///< O1, O2 and O, which is not used in place
  std::array<std::vector<float>, 3> lse;
};

class MergeImage {
 public:
  MergeImage(const MergeCase& one, std::uint64_t seed);

  [[nodiscard]] const MergeProblem& problem() const { return case_.problem; }
  [[nodiscard]] const MergeMemory& memory() const { return memory_; }

  /// The call on memories of these sizes, wherever they are.
  [[nodiscard]] attune_merge_states_args args(const std::array<void*, 3>& o, const std::array<void*, 3>& lse) const;

  /// CHECKs that O and LSE agree with the formula in float64, and that nothing else was written.
  void check(const MergeMemory& after) const;

 private:
  [[nodiscard]] std::size_t offset(int tensor, int sequence, int row, int head) const;
  [[nodiscard]] std::size_t lse_offset(int sequence, int row, int head) const;
  void check_row(const MergeMemory& after, MergeMemory& expected, int sequence, int row, int head) const;

  MergeCase case_;
  MergeMemory memory_;
};

}  // namespace attune::testing
