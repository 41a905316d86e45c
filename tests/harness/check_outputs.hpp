// What a call of attention left, held to the reference.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>

#include "runtime/lab/trial.hpp"

namespace attune::testing {

/// Whether nothing was written where the reference has NaN: to rows that no sequence has or uses.
inline bool unowned_rows_intact(const Outputs& outputs, const ReferenceOutput& reference) {
  for (std::size_t i = 0; i < reference.o.size(); ++i) {
    if (std::isnan(reference.o[i]) && outputs.o[i] != poison) return false;
  }
  for (std::size_t i = 0; i < reference.lse.size(); ++i) {
    if (std::isnan(reference.lse[i]) && !std::isnan(outputs.lse[i])) return false;
  }
  return true;
}

/// CHECKs that outputs agree with the reference, and that nothing else was written.
inline void check_outputs(const Outputs& outputs, Dtype dtype, const Expected& expected) {
  const Comparison comparison =
      compare({.dtype = dtype}, outputs.o.data(), outputs.lse.data(), expected.reference, expected.naive);
  CAPTURE(comparison.max_error);
  CAPTURE(comparison.tolerance);
  CAPTURE(comparison.lse_error);
  CAPTURE(comparison.lse_tolerance);
  CAPTURE(comparison.unwritten);
  CHECK(comparison.agrees);
  CHECK(outputs.guards_intact);
  CHECK(unowned_rows_intact(outputs, expected.reference));
}

}  // namespace attune::testing
