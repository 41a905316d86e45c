// The backward pass's last kernel (FlashAttention-2, arXiv 2307.08691) where blocks of keys have added to dQ in memory:
// sums in fp32 become dQ.
//
// Memory limits it: each sum is read once, 128 bytes a warp at a time. A warp has 16 rows, which pass through shared
// memory to be written row by row.
#include "backward_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int warps = 4;
constexpr bool ragged = false;
}  // namespace variant

#include "blocks/backward_rows.cuh"
#include "blocks/dq_sums.cuh"
#include "blocks/store.cuh"
#include "blocks/tile.cuh"
#include "ptx/floats.cuh"
#include "ptx/grid.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int block_rows = variant::warps * 16;
constexpr int pieces = variant::head_dim / 8;

using RowTile = Tile<block_rows, variant::head_dim, true>;

extern "C" __global__ void __launch_bounds__(threads)
    backward_convert(const __grid_constant__ AttuneBackwardParams params) {
  const uint3 block = block_index();
  const BackwardSequence<variant::ragged> sequence(params, static_cast<int>(block.z));
  const int head = static_cast<int>(block.y);
  const u32 warp_row = warp_index() * 16;
  const int first_row = static_cast<int>(block.x * block_rows + warp_row);
  if (first_row >= sequence.queries.count) return;  // the grid is made for the longest
  const i64 workspace_row = sequence.workspace_row(params, head, first_row);
  float dQ[1][pieces][4] = {};
#pragma unroll
  for (u32 n = 0; n < pieces; ++n) {
    if (static_cast<int>(n * 8) >= params.dq_columns) break;
    if (params.dq_in_quads != 0) {
      const Float4 four = load_global_floats(dq_quads(params, workspace_row, n));
#pragma unroll
      for (u32 e = 0; e < 4; ++e) dQ[0][n][e] = four.value[e];
    } else {
      const float* const from = dq_piece(params, workspace_row, n);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) dQ[0][n][e] = load_global_float(from + e * warp_size);
    }
  }
  float factor[1][2];
  factor[0][0] = factor[0][1] = params.scale;
  store_rows<variant::dtype>(dQ, factor, RowTile{shared_memory()}, warp_row,
                             sequence.query_rows(params.dq, head, params.head_dim), first_row);
}
