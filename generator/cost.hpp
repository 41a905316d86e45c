// What compiling a spec will cost, said before a compiler runs.
#pragma once

#include <span>

#include "generator/variant.hpp"

namespace attune {

/// A compiler's time on one core and the machine code it leaves.
struct Cost {
  double seconds = 0;
  long long bytes = 0;  ///< of machine code
};

/// mma instructions in one step of prefill_sm80's main loop, which is unrolled: two products of
/// (B_r / 16 / warps) x (B_c / 8) x (head_dim / 16) m16n8k16 tiles.
int mma_instructions(const Variant& variant);

/// A linear model for each family, added up over the variants; each is compiled `archs` times.
Cost estimate(std::span<const Variant> variants, int archs = 1);

}  // namespace attune
