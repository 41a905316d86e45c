// The launches of kernels of which each thread has 16 bytes of a tensor: their grids. The same for GPUs
// and for the emulator.
#pragma once

#include "runtime/call/device.hpp"
#include "runtime/call/plan.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

/// Everything the launch needs besides pointers.
struct ChunkPlan {
  Grid grid;
  int threads = 0;
};

/// That launch of a kernel; what it points to outlives it.
inline Step step_of(const ServingKernel& kernel, const ChunkPlan& plan, const void* params, Operands operands) {
  return {.kernel = &kernel,
          .grid = plan.grid,
          .threads = plan.threads,
          .shared_bytes = 0,
          .params = params,
          .operands = operands};
}

/// The launch facts of one variant for one problem. Throws Error{ATTUNE_UNSUPPORTED} when the problem is too large.
ChunkPlan plan(const Variant& variant, const StoreProblem& problem);
ChunkPlan plan(const Variant& variant, const MergeProblem& problem);

}  // namespace attune
