// The backward pass's first kernel (FlashAttention-2, arXiv 2307.08691): of each row D = rowsum(dO * O) - dLSE, and LSE
// in base 2, into the workspace; zeros where others will add to dQ; and of ragged batches zeros in gradients of rows
// that no sequence has or uses, which no other kernel writes.
//
// Memory limits it: O and dO are read once. A run of lanes has a row, 16 bytes of it each, and sums over themselves.
#include "backward_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int warps = 4;
constexpr bool ragged = false;
}  // namespace variant

#include "blocks/backward_rows.cuh"
#include "blocks/unused_rows.cuh"
#include "ptx/floats.cuh"
#include "ptx/grid.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "ptx/unpack.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int row_chunks = variant::head_dim / chunk;
constexpr int row_lanes = row_chunks <= 4 ? 4 : row_chunks <= 8 ? 8 : row_chunks <= 16 ? 16 : 32;
constexpr int block_rows = threads / row_lanes;

// The sum of the products of eight pairs of elements.
__device__ __forceinline__ float dot(const Chunk& x, const Chunk& y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += unpack_low<variant::dtype>(x.word[i]) * unpack_low<variant::dtype>(y.word[i]);
    sum += unpack_high<variant::dtype>(x.word[i]) * unpack_high<variant::dtype>(y.word[i]);
  }
  return sum;
}

// A block clears rows of its head of Q, and of the head of K and V of the same number, where there is one.
__device__ __forceinline__ void clear_unused(const AttuneBackwardParams& params, const SequenceRows& queries,
                                             const SequenceRows& keys, uint3 block) {
  const int sequence = static_cast<int>(block.z);
  const int head = static_cast<int>(block.y);
  const RowShare share{block.x * block_rows + thread_index() / row_lanes, grid_size().x * block_rows,
                       thread_index() % row_lanes, row_lanes};
  const UnusedRows of_queries(queries, params.cu_seqlens_q, sequence, params.batch, params.total_q);
  of_queries.clear(params.dq, head, params.head_dim, share);
  const bool has_keys = block.y * static_cast<u32>(params.gqa_ratio) < static_cast<u32>(params.heads_q);
  if (!has_keys) return;
  const UnusedRows of_keys(keys, params.cu_seqlens_k, sequence, params.batch, params.total_k);
  of_keys.clear(params.dk, head, params.head_dim, share);
  of_keys.clear(params.dv, head, params.head_dim_v, share);
}

extern "C" __global__ void __launch_bounds__(threads)
    backward_rows(const __grid_constant__ AttuneBackwardParams params) {
  constexpr float log2_e = 1.44269504088896f;
  const uint3 block = block_index();
  const BackwardSequence<variant::ragged> sequence(params, static_cast<int>(block.z));
  const int head = static_cast<int>(block.y);
  if constexpr (variant::ragged) clear_unused(params, sequence.queries, sequence.keys, block);
  const int first_row = static_cast<int>(block.x) * block_rows;
  // The grid is made for the longest sequence; of others the rows count that fill their last tile.
  const int tile_rows =
      (sequence.queries.count + ATTUNE_BACKWARD_ROWS - 1) / ATTUNE_BACKWARD_ROWS * ATTUNE_BACKWARD_ROWS;
  if (first_row >= tile_rows) return;
  const int row = first_row + static_cast<int>(thread_index()) / row_lanes;
  const int own_chunk = static_cast<int>(thread_index()) % row_lanes;
  const bool exists = row < sequence.queries.count;

  const float lse = exists ? load_global_float(params.lse + sequence.lse_place(params, head, row)) : minus_infinity();
  const bool counts = lse != minus_infinity() && lse != -minus_infinity();
  float D = 0.0f;
  if (counts && own_chunk * chunk < params.head_dim_v) {
    const Matrix O = sequence.query_rows(params.o, head, params.head_dim_v);
    const Matrix dO = sequence.query_rows(params.dout, head, params.head_dim_v);
    D = dot(load_global(O.at(row, static_cast<u32>(own_chunk))), load_global(dO.at(row, static_cast<u32>(own_chunk))));
  }
#pragma unroll
  for (int distance = 1; distance < row_lanes; distance *= 2) D += shuffle_xor(D, distance);

  const i64 workspace_row = sequence.workspace_row(params, head, row);
  if (own_chunk == 0) {
    if (counts && params.dlse != nullptr) D -= load_global_float(params.dlse + sequence.lse_place(params, head, row));
    store_global(params.statistics + 2 * workspace_row, counts ? lse * log2_e : -minus_infinity());
    store_global(params.statistics + 2 * workspace_row + 1, D);
  }
  if (params.dq_sums == nullptr) return;
  for (int column = own_chunk * 4; column < params.dq_columns; column += row_lanes * 4) {
    store_global(params.dq_sums + workspace_row * params.dq_columns + column, Float4{});
  }
}
