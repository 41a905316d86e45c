// FlashAttention-2 backward (arXiv 2307.08691) on mma.sync and cp.async, compute capability 8.0 and newer: dQ, without
// a sum in memory.
//
// A block owns B_r queries of one head and walks the keys B_c at a time, from the last visible block down, as the
// forward kernel does: S = Q K^T and dP = dO V^T anew, dQ += dS K. So dQ costs three products where a block of keys
// that adds to it in memory spends one; in return its bits are always the same, and nothing waits for anybody.
//
// A warp owns 16 * row_tiles queries. Registers of a thread: dQ takes row_tiles * D / 2, S and dP row_tiles * B_c; at D
// = 128 with one row tile and B_c = 64 that is 128, at D = 256 and B_c = 32 160. Per mma.sync a warp reads 5 / 8 of a
// fragment with one row tile (each of K and V serves 16 queries, those of Q and dO are read again for each step) and
// half as much with two: shared memory limits beside the tensor cores.
#include "backward_params.h"
#include "expressed_backward_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 128;
constexpr int B_c = 64;
constexpr int warps = 8;
constexpr int stages = 2;
constexpr bool causal = false;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool ragged = false;
constexpr bool dropout = false;
}  // namespace variant

#include "blocks/backward_rows.cuh"
#include "blocks/copy.cuh"
#include "blocks/matrix_source.cuh"
#include "blocks/pair_mask.cuh"
#include "blocks/pipeline.cuh"
#include "blocks/product.cuh"
#include "blocks/schedule.cuh"
#include "blocks/score_gradients.cuh"
#include "blocks/softcap.cuh"
#include "blocks/store.cuh"
#include "blocks/tile.cuh"
#include "blocks/weight_dropout.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"

#include "blocks/express_pairs.cuh"
#include "blocks/express_scores.cuh"
#include "blocks/expressions.cuh"
#include "blocks/live_blocks.cuh"
#include "blocks/live_source.cuh"
#include "blocks/score_place.cuh"

using PlainParams = Select<variant::score || variant::mask, AttuneExpressedBackwardParams, AttuneBackwardParams>;

constexpr int threads = variant::warps * warp_size;
constexpr int row_tiles = variant::B_r / (16 * variant::warps);  // 16-row tiles of a warp
constexpr int key_pieces = variant::B_c / 16;                    // 16-key pieces of a block
constexpr int head_pieces = variant::head_dim / 16;              // 16-wide pieces of a row

using QTile = Tile<variant::B_r, variant::head_dim, true>;
using QCopy = TileCopy<QTile, threads, true>;
using KVTile = Tile<variant::B_c, variant::head_dim, true>;
using AllBlocks = MatrixSource<KVTile, threads, true, false>;
using Live = LiveBlocks<variant::B_r, variant::B_c>;
using Source = Select<variant::mask, LiveSource<false, AllBlocks, Live>, AllBlocks>;
using Pipeline = KVPipeline<Source, variant::stages, true, true>;

static_assert(variant::B_r == 16 * row_tiles * variant::warps && variant::B_c % 16 == 0);
static_assert(ATTUNE_BACKWARD_ROWS % variant::B_r == 0);

using Scores = float[row_tiles][key_pieces * 2][4];

// The statistics of the two rows of each tile that a lane has.
struct LaneStatistics {
  RowStatistics row[row_tiles][2];

  __device__ __forceinline__ explicit LaneStatistics(const float* first_row) {
#pragma unroll
    for (u32 i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        const float* const from = first_row + 2 * (i * 16 + h * 8 + lane_index() / 4);
        row[i][h] = {load_global_float(from), load_global_float(from + 1)};
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(threads)
    backward_dq_sm80(const __grid_constant__ Select<variant::dropout, WithDropout<PlainParams>, PlainParams> params) {
  const TileIndex tile = tile_index<variant::causal>(static_cast<u32>(params.heads_q), static_cast<u32>(params.batch));
  if (!tile.exists) return;
  const BackwardSequence<variant::ragged> sequence(params, tile.batch);
  const int first_query = tile.q_block * variant::B_r;
  if (first_query >= sequence.queries.count) return;  // the grid is made for the longest
  const PairMask<variant::causal, variant::window> mask(params, sequence);
  const int first_block = mask.first_key(first_query) / variant::B_c;
  const int end_key = mask.key_limit(first_query + variant::B_r - 1);
  const int end_block = end_key > 0 ? (end_key + variant::B_c - 1) / variant::B_c : 0;
  int blocks = end_block > first_block ? end_block - first_block : 0;

  const QTile Q{shared_memory()};
  const QTile dO{Q.base + QTile::bytes};
  const int kv_head = tile.head / params.gqa_ratio;
  int outside = first_block * variant::B_c;  // keys before the first block, which no row of the tile sees
  const ScoreRows score_rows = rows_of_head(sequence, tile.batch, tile.head, kv_head);
  const Live live{params, score_rows, tile.head, first_query};
  int block = first_block + blocks - 1;  // the one of S
  if constexpr (variant::mask) {
    block = live.last(block, first_block - 1);
    blocks = live.count(first_block, block);
    outside = (block + 1 - blocks) * variant::B_c;
  }
  const Matrix V_rows = sequence.key_rows(params.v, kv_head, params.head_dim_v);
  const Matrix K_rows = sequence.key_rows(params.k, kv_head, params.head_dim);
  // V is its first operand and K its second, as K is needed to the end of a step.
  Pipeline pipeline(dO.base + QTile::bytes, {V_rows, K_rows, outside + (blocks > 0 ? blocks - 1 : 0) * variant::B_c},
                    blocks);
  if constexpr (variant::mask) follow_live(pipeline.source, live, first_block, block);
  const QCopy Q_rows(sequence.query_rows(params.q, tile.head, params.head_dim), first_query);
  const QCopy dO_rows(sequence.query_rows(params.dout, tile.head, params.head_dim_v), first_query);
  Q_rows.copy<false>(Q);
  dO_rows.copy<false>(dO);
  pipeline.begin();

  const u32 warp_row = warp_index() * (16 * row_tiles);
  const int own_query = first_query + static_cast<int>(warp_row);
  const LaneStatistics statistics(params.statistics + 2 * sequence.workspace_row(params, tile.head, own_query));

  const Dropout dropped{dropout_of(params), tile.batch * params.heads_q + tile.head};
  float dQ[row_tiles][head_pieces * 2][4] = {};
  for (int j = blocks - 1; j >= 0; --j) {
    Scores dP = {};
    const KVTile V = pipeline.wait_for_K(j);
    {
      TileOperand<Side::A, Inner::columns, QTile, row_tiles> a(dO, warp_row / 16);
      TileOperand<Side::B, Inner::columns, KVTile, key_pieces> b(V, 0);
      multiply<variant::dtype, head_pieces>(dP, a, b);
    }
    Scores S = {};
    const KVTile K = pipeline.wait_for_V(j);
    {
      TileOperand<Side::A, Inner::columns, QTile, row_tiles> a(Q, warp_row / 16);
      TileOperand<Side::B, Inner::columns, KVTile, key_pieces> b(K, 0);
      multiply<variant::dtype, head_pieces>(S, a, b);
    }
    if constexpr (variant::softcap && !variant::score && !variant::mask) {
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) cap_scores(S[i], params.cap_scale);
    }
    const int first_key = outside + j * variant::B_c;
    if constexpr (variant::score || variant::mask) {
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        apply_expressions(S[i], expressions_of(params), score_rows, {own_query + i * 16, first_key}, params.cap_scale);
      }
    }
    if (!mask.is_full(own_query, 16 * row_tiles, first_key, variant::B_c)) {
      mask_pairs<false>(mask, S, own_query, first_key);
    }
    if constexpr (variant::dropout) {
      keep_gradients(dP, KeptWeights<false, row_tiles, key_pieces * 2>(dropped, own_query, first_key), dropped.scale);
    }
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int n = 0; n < key_pieces * 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          score_gradient<variant::softcap>(S[i][n][e], dP[i][n][e], statistics.row[i][e / 2], params.scale_log2);
        }
      }
    }
    ScoreOperand<false, variant::dtype, row_tiles, key_pieces * 2, KVTile, key_pieces> dS(dP, K, 0, 0);
    {
      TileOperand<Side::B, Inner::rows, KVTile, head_pieces> b(K, 0);
      multiply<variant::dtype, key_pieces>(dQ, dS, b);
    }
    pipeline.done_with_V(j);
    if constexpr (variant::mask) {  // so that outside + (j - 1) * B_c is where the next one begins
      const int next = live.last(block - 1, first_block);
      outside -= (block - 1 - next) * variant::B_c;
      block = next;
    }
  }

  pipeline.end();
  float factor[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) factor[i][0] = factor[i][1] = params.scale;
  store_rows<variant::dtype>(dQ, factor, Q, warp_row, sequence.query_rows(params.dq, tile.head, params.head_dim),
                             first_query + static_cast<int>(warp_row));
}
