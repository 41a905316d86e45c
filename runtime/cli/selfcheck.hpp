// Where no GPU is: at least the reference is held against something that was not written like it.
#pragma once

#include <cstdint>

namespace attune::cli {

struct SelfCheck {
  bool ok = true;
  int cases = 0;
  double max_error = 0;
};

/// Compares the reference with online softmax over keys in reverse order in long double, on small problems with
/// causal masks, shared heads and unequal lengths; and checks that constant values come back unchanged.
SelfCheck check_reference(std::uint64_t seed);

}  // namespace attune::cli
