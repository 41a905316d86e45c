// dQ as the workspace holds it while blocks of keys add to it, in fp32: of each 16 rows one piece of 8 columns after
// the other, as mma has its accumulators, so that what a warp adds or reads at once lies side by side.
#pragma once

#include "backward_params.h"
#include "ptx/thread.cuh"
#include "types.h"

// A lane's first element of a piece; the others follow by warp_size each. `workspace_row` is a multiple of 16.
__device__ __forceinline__ float* dq_piece(const AttuneBackwardParams& params, i64 workspace_row, u32 piece) {
  return params.dq_sums + workspace_row * params.dq_columns + piece * (16 * 8) + lane_index();
}

// The same in an order for those who add four at once: a lane's elements of a piece lie side by side, 16-byte aligned
// (AttuneBackwardParams::dq_in_quads).
__device__ __forceinline__ float* dq_quads(const AttuneBackwardParams& params, i64 workspace_row, u32 piece) {
  return params.dq_sums + workspace_row * params.dq_columns + piece * (16 * 8) + lane_index() * 4;
}
