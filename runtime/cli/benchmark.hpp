// Timing kernels on one problem.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/cli/gpu.hpp"

namespace attune::cli {

/// A named list of problems: "quick", "prefill" or "gqa".
std::vector<Problem> named_cases(const std::string& name);

struct Timing {
  std::string variant;
  double seconds = 0;  ///< median
  double fastest = 0;
  double tflops = 0;  ///< at the median
};

/// Times every kernel that serves the problem with the least padding, in the order given. Their launches take turns,
/// so that none runs on a card that another has heated, and walk through copies of the problem that together exceed
/// the L2, so that each finds it cold.
std::vector<Timing> measure(const Gpu& gpu, std::span<const LoadedKernel> kernels, const Problem& problem, int launches,
                            std::uint64_t seed);

}  // namespace attune::cli
