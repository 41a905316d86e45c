// One call of store_kv as host memory, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/operations/store/problem.hpp"
#include "tests/harness/placed_tensor.hpp"

namespace attune::testing {

/// A problem and what decides about its memory.
struct StoreCase {
  StoreProblem problem;
  std::vector<std::int64_t> slots{};      ///< batch x tokens; empty: tokens are appended
  std::vector<std::int32_t> lengths{};    ///< batch; empty: no sequence has keys yet
  std::vector<std::int32_t> table{};      ///< batch x table_width; empty: sequence i has page i
  std::vector<std::int32_t> positions{};  ///< batch x tokens; empty: those after the lengths
  bool new_heads_outermost = false;
  bool k_heads_outermost = false;  ///< in a page
  bool v_heads_outermost = false;

  [[nodiscard]] std::string text() const;
};

/// A case of any kind that store_kv serves. No two tokens have one place.
StoreCase random_store_case(Random& random);

/// The cache and what surrounds each tensor are full of random bits.
class StoreImage {
 public:
  StoreImage(StoreCase one, std::uint64_t seed);

  [[nodiscard]] const StoreProblem& problem() const { return case_.problem; }

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is.
  [[nodiscard]] attune_store_kv_args args(void* memory) const;

  /// Whether the cache has the new rows, to the bit, and every other byte is as it was.
  [[nodiscard]] bool agrees(const Memory& after) const { return after == with_new_rows(); }

 private:
  struct Place {
    std::int64_t page;  ///< -1: nowhere
    std::int64_t token;
  };
  [[nodiscard]] Place place_of(int sequence, int token) const;
  [[nodiscard]] std::int64_t position_of(int sequence, int token) const;
  [[nodiscard]] Memory with_new_rows() const;

  StoreCase case_;
  PlacedTensor new_k_;
  PlacedTensor new_v_;
  PlacedTensor k_;
  PlacedTensor v_;
  std::size_t cos_ = 0;  ///< places, in bytes
  std::size_t sin_ = 0;
  std::size_t slots_ = 0;
  std::size_t lengths_ = 0;
  std::size_t table_ = 0;
  std::size_t positions_ = 0;
  Memory memory_;
};

}  // namespace attune::testing
