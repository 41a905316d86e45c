// The named lists of problems that are timed and tuned.
#pragma once

#include <string>
#include <vector>

#include "runtime/tune/problems.hpp"

namespace attune::cli {

/// "quick" (a few shapes of head_dim 64 and 128), "prefill" (FlashAttention's 36 shapes of 16K tokens), "gqa" (four
/// causal ones whose heads share keys), "varlen" (those of "prefill" as ragged batches), "decode" (one query token over
/// contiguous caches of sequences that are equally long, from 4K keys of one sequence to 8K of 64), "paged", the same
/// in pages of 64 tokens, or "backward" (gradients of 16 shapes, each deterministic and not).
std::vector<tune::AnyProblem> suite(const std::string& name);

/// All names that suite() takes.
std::vector<std::string> suite_names();

/// The same for --help, with how many problems each has.
std::string suite_help();

}  // namespace attune::cli
