// S = Q K^T on wgmma: the first columns of Q are in registers where a variant has some there, the others in shared
// memory.
#pragma once

#include "blocks/ring.cuh"
#include "ptx/wgmma.cuh"
#include "types.h"

constexpr int Q_steps = variant::Q_columns_in_registers / 16;  // of products
constexpr int Q_fragments = Q_steps == 0 ? 1 : Q_steps;        // an array of none is no C++

// For 64 rows of Q's tile, from this one on, and the first 8 * pieces keys of K's; under way.
template <class QTile, class KTile, int stages, int readers, int pieces>
__device__ __forceinline__ void multiply_QK(float (&S)[pieces][4], const u32 (&Q)[Q_fragments][4],
                                            const Ring<QTile, 1, readers>& q, const Ring<KTile, stages, readers>& k,
                                            int first_row) {
  wgmma_fence();
  if constexpr (variant::Q_columns_in_registers != 0) {
    wgmma<variant::dtype, false, KTile::columns_right>(S, Q, k.tile().descriptor(0), false);
  }
  if constexpr (variant::Q_columns_in_registers != variant::head_dim) {
    const u64 A = q.tile().descriptor(first_row);
    const u64 B = k.tile().descriptor(0);
    constexpr int steps = variant::head_dim / 16 - Q_steps;
    wgmma<variant::dtype, false, KTile::columns_right, QTile::columns_right, Q_steps, steps>(S, A, B, Q_steps > 0);
  }
  wgmma_commit();
}
