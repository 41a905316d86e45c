// The launches of kernels of which each thread has 16 bytes of a tensor: their grids. The same for GPUs
// and for the emulator.
#pragma once

#include "runtime/call/device.hpp"
#include "runtime/call/fit.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

/// Everything the launch needs besides pointers.
struct ChunkPlan {
  Grid grid;
  int threads = 0;
};

/// The launch facts of one variant for one problem. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
ChunkPlan plan(const Variant& variant, const StoreProblem& problem);
ChunkPlan plan(const Variant& variant, const MergeProblem& problem);

}  // namespace attune
