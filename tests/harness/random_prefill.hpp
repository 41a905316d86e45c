// Prefill problems of any kind that no shipped kernel is for, the same for the emulator and for GPUs.
#pragma once

#include "runtime/base/random.hpp"
#include "tests/harness/call_image.hpp"

namespace attune::testing {

struct PrefillCase {
  Problem problem;
  Layout layout = Layout::bshd;
  Sequences sequences;
  int poisoned = -1;  ///< a sequence that is NaN; -1: none

  [[nodiscard]] CallImage image(std::uint64_t seed) const;
};

/// A problem with windows, soft caps and ragged batches, each or none, with at most so many rows and keys a sequence.
PrefillCase random_prefill_case(Random& random, int most_rows);

/// The same with keys in pages, which sequences may share.
PrefillCase random_paged_case(Random& random, int most_rows);

/// Fills an array of lengths with anything: negative entries, decreasing ones, some beyond `total`.
void make_wild(Random& random, std::vector<std::int32_t>& cu_seqlens, int total);

}  // namespace attune::testing
