// One call of rotary_embedding as host memory, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/operations/rotary/problem.hpp"

namespace attune::testing {

/// Queries and keys with gaps of random bits between and around their rows; positions inside and outside the tables.
class RotaryCall {
 public:
  /// Of any kind that rotary_embedding serves.
  explicit RotaryCall(Random& random);

  [[nodiscard]] const RotaryProblem& problem() const { return problem_; }

  /// Q, K, cosines and sines; then positions and offsets.
  [[nodiscard]] const std::vector<std::uint16_t>& elements() const { return elements_; }
  [[nodiscard]] const std::vector<std::int32_t>& positions() const { return positions_; }

  /// The call on memories of these sizes, wherever they are.
  [[nodiscard]] attune_rotary_embedding_args args(void* elements, void* positions) const;

  /// What it leaves in `elements`, to the bit.
  [[nodiscard]] std::vector<std::uint16_t> expected() const;

 private:
  /// Of Q or K.
  struct Placement {
    std::size_t first = 0;
    int heads = 0;
    std::int64_t stride_batch = 0;
    std::int64_t stride_seq = 0;
    std::int64_t stride_head = 0;
  };
  Placement place(Random& random, int heads);
  [[nodiscard]] std::int64_t position_of(int sequence, int row) const;

  RotaryProblem problem_;
  bool has_positions_ = false;
  bool has_offsets_ = false;
  Placement q_;
  Placement k_;
  std::size_t cos_ = 0;
  std::size_t sin_ = 0;
  std::vector<std::uint16_t> elements_;
  std::vector<std::int32_t> positions_;
};

}  // namespace attune::testing
