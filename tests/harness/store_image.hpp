// One call of store_kv as host memory, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune::testing {

/// A problem and what decides about its memory.
struct StoreCase {
  StoreProblem problem;
  std::vector<std::int64_t> slots{};      ///< batch x tokens; empty: tokens are appended
  std::vector<std::int32_t> lengths{};    ///< batch; empty: no sequence has keys yet
  std::vector<std::int32_t> table{};      ///< batch x table_width; empty: sequence i has page i
  std::vector<std::int32_t> positions{};  ///< batch x tokens; empty: those behind the lengths
  bool new_heads_outermost = false;
  bool k_heads_outermost = false;  ///< in a page
  bool v_heads_outermost = false;

  [[nodiscard]] std::string text() const;
};

/// A case of any kind that store_kv serves. No two tokens have one place.
StoreCase random_store_case(Random& random);

/// The memories of a call. The cache and what surrounds each tensor are full of random bits.
struct StoreMemory {
  std::vector<std::uint16_t> fresh;   ///< the new keys and values
  std::vector<std::uint16_t> angles;  ///< cosines and sines
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> ints;  ///< lengths, table and positions
  std::vector<std::uint16_t> cache;
};

class StoreImage {
 public:
  StoreImage(StoreCase one, std::uint64_t seed);

  [[nodiscard]] const StoreProblem& problem() const { return case_.problem; }
  [[nodiscard]] const StoreMemory& memory() const { return memory_; }

  /// The call on memories of these sizes, wherever they are.
  [[nodiscard]] attune_store_kv_args args(void* fresh, void* angles, void* slots, void* ints, void* cache) const;

  /// Whether the cache has the new rows, to the bit where nothing is rotated and rounded correctly elsewhere, and every
  /// other byte as it was.
  [[nodiscard]] bool agrees(const std::vector<std::uint16_t>& cache) const;

 private:
  struct Place {
    std::int64_t page;  ///< -1: nowhere
    std::int64_t token;
  };
  [[nodiscard]] Place place_of(int sequence, int token) const;
  [[nodiscard]] std::int64_t position_of(int sequence, int token) const;
  [[nodiscard]] std::size_t new_offset(bool value, int sequence, int token, int head) const;
  [[nodiscard]] std::size_t cache_offset(bool value, const Place& place, int head) const;
  void check_rotated(std::vector<std::uint16_t>& expected, const std::vector<std::uint16_t>& cache, std::size_t from,
                     std::size_t to, std::int64_t position) const;

  StoreCase case_;
  StoreMemory memory_;
  std::size_t k_first_ = 0;  ///< in the cache
  std::size_t v_first_ = 0;
  std::size_t sin_first_ = 0;
};

}  // namespace attune::testing
