// The launches of kernels of which each thread has 16 bytes of a tensor: which kernel serves, and its grid. The same
// for GPUs and for the emulator.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/problem/device.hpp"
#include "runtime/problem/store_problem.hpp"

namespace attune {

/// Everything the launch needs besides pointers.
struct ChunkPlan {
  Grid grid;
  int threads = 0;
};

/// Why this variant cannot serve this problem on this device; empty when it can.
std::vector<std::string> refusals(const Variant& variant, const StoreProblem& problem, const Device& device);
std::vector<std::string> refusals(const Variant& variant, const MergeProblem& problem, const Device& device);

/// The first of the candidates that serves.
std::optional<Variant> choose(std::span<const Variant> candidates, const StoreProblem& problem, const Device& device);
std::optional<Variant> choose(std::span<const Variant> candidates, const MergeProblem& problem, const Device& device);

/// The family's own kernel for a problem.
Variant own_variant(const StoreProblem& problem, const Device& device);
Variant own_variant(const MergeProblem& problem, const Device& device);

/// The launch facts of one variant for one problem. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
ChunkPlan plan(const Variant& variant, const StoreProblem& problem);
ChunkPlan plan(const Variant& variant, const MergeProblem& problem);

}  // namespace attune
