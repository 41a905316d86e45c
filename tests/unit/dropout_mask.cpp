// Which weights dropout keeps: as many as it says, each by itself.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

#include "runtime/call/dropout.hpp"
#include "runtime/lab/dropout_mask.hpp"

namespace attune {
namespace {

/// The part of pairs of weights, one at (head, row, key) and one that far from it, of which both are kept.
double both_kept(const DropoutMask& mask, int head, int row, int key) {
  int both = 0;
  constexpr int rows = 200;
  constexpr int keys = 300;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < keys; ++j) both += mask.keeps(3, i, j) && mask.keeps(3 + head, i + row, j + key) ? 1 : 0;
  }
  return static_cast<double>(both) / (rows * keys);
}

}  // namespace

TEST_CASE("the probability of dropout is rounded to a multiple of 1/256, below 1") {
  CHECK(kept_values(0) == 256);
  CHECK(kept_values(0.5F) == 128);
  CHECK(kept_values(0.1F) == 230);
  CHECK(kept_values(0.9999F) == 1);
  CHECK(kept_values(0.001F) == 256);
}

TEST_CASE("weights are kept as often as said, and whether one is says nothing of any other") {
  for (const unsigned kept : {26U, 128U, 230U}) {
    const DropoutMask mask{.seed = 5, .offset = 8, .kept = kept};
    const double p = kept / 256.0;
    // Five standard deviations of so many samples.
    const auto near = [&](double found, double expected) {
      return std::abs(found - expected) < 5 * std::sqrt(expected * (1 - expected) / 60000) + 1e-9;
    };
    CHECK(near(both_kept(mask, 0, 0, 0), p));
    for (const auto& [head, row, key] : {std::array{0, 0, 1},
                                         {0, 1, 0},
                                         {0, 0, 8},
                                         {0, 8, 0},
                                         {0, 8, 8},
                                         {0, 16, 0},
                                         {0, 0, 16},
                                         {0, 16, 16},
                                         {0, 32, 0},
                                         {0, 0, 32},
                                         {1, 0, 0},
                                         {64, 0, 0}}) {
      CAPTURE(head);
      CAPTURE(row);
      CAPTURE(key);
      CHECK(near(both_kept(mask, head, row, key), p * p));
    }
  }
}

TEST_CASE("the first weights of a seed are those that every version drops") {
  const DropoutMask mask{.seed = 42, .offset = 4, .kept = 128};
  unsigned bits = 0;
  for (int key = 0; key < 32; ++key) bits = bits << 1 | (mask.keeps(0, 0, key) ? 1U : 0U);
  CHECK(bits == 0x8dc4d55a);
}

}  // namespace attune
