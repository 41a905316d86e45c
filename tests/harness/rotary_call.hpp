// One call of rotary_embedding as host memory, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/operations/rotary/problem.hpp"
#include "tests/harness/placed_tensor.hpp"

namespace attune::testing {

/// Queries and keys with gaps of random bits between and around their rows; positions inside and outside the tables.
class RotaryCall {
 public:
  /// Of any kind that rotary_embedding serves.
  explicit RotaryCall(Random& random);

  [[nodiscard]] const RotaryProblem& problem() const { return problem_; }

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is.
  [[nodiscard]] attune_rotary_embedding_args args(void* memory) const;

  /// What it leaves there, to the bit.
  [[nodiscard]] Memory expected() const;

 private:
  [[nodiscard]] PlacedTensor place(Random& random, Places& places, int heads) const;
  [[nodiscard]] std::int64_t position_of(int sequence, int row) const;

  RotaryProblem problem_;
  bool has_positions_ = false;
  bool has_offsets_ = false;
  PlacedTensor q_;
  PlacedTensor k_;
  std::size_t cos_ = 0;  ///< places, in bytes
  std::size_t sin_ = 0;
  std::size_t positions_place_ = 0;
  std::vector<std::int32_t> positions_;  ///< then offsets
  Memory memory_;
};

}  // namespace attune::testing
