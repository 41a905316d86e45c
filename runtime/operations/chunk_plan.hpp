// The launches of kernels of which each thread has 16 bytes of a tensor: their grids. The same for GPUs
// and for the emulator.
#pragma once

#include "runtime/call/device.hpp"
#include "runtime/call/plan.hpp"

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

/// That of a variant, for a tensor of batch x rows x heads x head_dim. Throws Error{ATTUNE_UNSUPPORTED} when it is too
/// large.
ChunkPlan plan_chunks(const Variant& variant, int batch, int rows, int heads, int head_dim);

}  // namespace attune
