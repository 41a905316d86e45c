// FlashAttention-2 backward (arXiv 2307.08691) on mma.sync and cp.async, compute capability 8.0 and newer: dK and dV,
// and dQ where its sums may have any order.
//
// A block owns B_c keys of one K/V head and walks the queries of all heads that share it, B_r at a time, from the last
// that sees one of its keys to the first. It computes scores transposed, S^T = K Q^T and dP^T = V dO^T, so that P^T and
// dS^T are in registers just as the products dV += P^T dO and dK += dS^T Q take them: a warp owns 16 * key_tiles keys,
// and its scores never leave it. Sums over queries stay in the block, those of grouped heads too.
//
// Which unit limits it: a warp's four products of 16 keys, B_r queries and head_dim D are B_r * D / 32 mma.sync, at
// best one every 8 clocks of a quarter of a multiprocessor on 8.0, so one every 2 clocks of all four. Where a warp has
// one tile of 16 keys each of them reads half a fragment of 512 bytes, 2 clocks of shared memory, and where it has two
// half of that. So shared memory and tensor cores limit at about the same time with one tile, tensor cores with two;
// the exponentials, B_r / 2 a lane, of 8 clocks a warp, run in their shadow.
//
// Registers of a thread: dK and dV take key_tiles * D / column_warps, S and dP key_tiles * B_r / column_warps,
// fragments of the widest operand D / (4 * column_warps) and addresses some 20. D = 64 with two tiles of keys and B_r =
// 32, and D = 128 with one and B_r = 64, come to 192 and fit. Beyond 128 the accumulators of all columns do not: then
// column_warps warps share a tile's keys, each with a part of the queries of S and of the columns of dK and dV, and P
// and dS go through shared memory.
//
// Without `deterministic` a block adds dQ += dS K to the workspace, in fp32 and in whatever order blocks come: five
// products where backward_dq_sm80 makes it seven, and B_r * D additions in L2 for each B_r * B_c scores. dS then goes
// through shared memory, as dQ sums over the keys of all warps; and as they meet there anyway, with two stages twice as
// many share 32 keys, so that P goes there, too, but fragments of Q and dO are read half as often: 56 KB a warp and
// step at D = 128 instead of 72, and ptxas spills 4 bytes instead of 68.
//
// A block has all query heads that share its keys: multi-query attention in a small batch has too few blocks for the
// GPU (32 for the 108 multiprocessors of an A100, of 32 heads on one and 4,096 keys), where backward_sm90 parts them.
#include "backward_params.h"
#include "expressed_backward_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 64;
constexpr int B_c = 128;
constexpr int warps = 8;
constexpr int stages = 2;
constexpr bool causal = false;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool ragged = false;
constexpr bool dropout = false;
constexpr bool deterministic = true;
}  // namespace variant

#include "blocks/backward_rows.cuh"
#include "blocks/copy.cuh"
#include "blocks/dq_sums.cuh"
#include "blocks/pair_mask.cuh"
#include "blocks/product.cuh"
#include "blocks/query_pipeline.cuh"
#include "blocks/schedule.cuh"
#include "blocks/score_gradients.cuh"
#include "blocks/softcap.cuh"
#include "blocks/store_tile.cuh"
#include "blocks/tile.cuh"
#include "blocks/weight_dropout.cuh"
#include "ptx/floats.cuh"
#include "ptx/memory.cuh"
#include "ptx/reduce.cuh"
#include "ptx/thread.cuh"

#include "blocks/express_pairs.cuh"
#include "blocks/expressions.cuh"
#include "blocks/live_queries.cuh"
#include "blocks/score_place.cuh"

using PlainParams = Select<variant::score || variant::mask, AttuneExpressedBackwardParams, AttuneBackwardParams>;

constexpr int threads = variant::warps * warp_size;
// Whether two warps share two tiles of keys, where each would have one of its own: only if the pieces of S and of dK,
// 16 by 32, divide evenly among all warps. With one stage, where shared memory is short, P has no place there.
constexpr int score_elements = variant::B_c * variant::B_r;
constexpr int key_elements = variant::B_c * variant::head_dim;
constexpr bool pairs_keys = !variant::deterministic && variant::stages > 1 && variant::B_c % 32 == 0 &&
                            (variant::B_c <= 16 * variant::warps) && score_elements % (16 * 32 * variant::warps) == 0 &&
                            key_elements % (16 * 32 * variant::warps) == 0;
constexpr int whole_tiles = variant::B_c > 16 * variant::warps ? variant::B_c / (16 * variant::warps) : 1;
constexpr int key_tiles = pairs_keys ? 2 : whole_tiles;  // of a warp
constexpr int key_warps = variant::B_c / (16 * key_tiles);
constexpr int column_warps = variant::warps / key_warps;
constexpr bool exchanges = column_warps > 1;                          // P and dS, through shared memory
constexpr int query_pieces = variant::B_r / 16 / column_warps;        // 16-wide pieces of a warp's scores, ...
constexpr int column_pieces = variant::head_dim / 16 / column_warps;  // ... and of its columns of dK and dV

using KTile = Tile<variant::B_c, variant::head_dim, true>;
using QTile = Tile<variant::B_r, variant::head_dim, true>;
using KCopy = TileCopy<KTile, threads, true>;
using ScoreTile = Tile<variant::B_c, variant::B_r, true>;  // transposed
using Live = LiveQueries<variant::B_r, variant::B_c>;
using Sequence =
    Select<variant::mask, LiveSequence<BackwardSequence<variant::ragged>, Live>, BackwardSequence<variant::ragged>>;
using Pipeline = QueryPipeline<QTile, Sequence, threads, variant::stages>;

constexpr int query_tiles = variant::B_r / 16;       // 16-row tiles of dQ
constexpr int head_pieces = variant::head_dim / 16;  // and its 16-wide pieces

// How many warps share dQ's columns: as many as divide it, up to four.
template <int column_warps>
constexpr bool dq_has = variant::warps % column_warps == 0 && head_pieces % column_warps == 0 &&
                        query_tiles % (variant::warps / column_warps) == 0;
constexpr int dq_column_warps = dq_has<4> ? 4 : dq_has<2> ? 2 : 1;
constexpr int dq_row_warps = variant::warps / dq_column_warps;

static_assert(variant::B_c == 16 * key_tiles * key_warps && variant::warps == key_warps * column_warps);
static_assert(variant::B_r == 16 * query_pieces * column_warps && ATTUNE_BACKWARD_ROWS % variant::B_r == 0);
static_assert(variant::head_dim == 16 * column_pieces * column_warps);
static_assert(variant::deterministic || dq_has<dq_column_warps>);

using Scores = float[key_tiles][query_pieces * 2][4];
using KGradient = float[key_tiles][column_pieces * 2][4];
using Weights = ScoreOperand<exchanges, variant::dtype, key_tiles, query_pieces * 2, ScoreTile, variant::B_r / 16>;

// S becomes P^T and dP becomes dS^T, for the queries whose statistics begin at this shared address.
__device__ __forceinline__ void apply_softmax(Scores& S, Scores& dP, u32 statistics, float scale_log2) {
  const u32 lane_statistics = statistics + lane_index() % 4 * sizeof(Float4);
#pragma unroll
  for (u32 n = 0; n < query_pieces * 2; ++n) {
    const Float4 two = load_shared_floats(lane_statistics + n * 4 * sizeof(Float4));
#pragma unroll
    for (int i = 0; i < key_tiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const RowStatistics row{two.value[e % 2 * 2], two.value[e % 2 * 2 + 1]};
        score_gradient<variant::softcap>(S[i][n][e], dP[i][n][e], row, scale_log2);
      }
    }
  }
}

// dQ += dS K of one block of queries, to which others add in memory.
template <int row_tiles, int pieces>
__device__ __forceinline__ void add_dq(const AttuneBackwardParams& params, const KTile& K, const ScoreTile& ds_tile,
                                       i64 workspace_row, u32 warp) {
  const u32 row_warp = warp % dq_row_warps;
  const u32 column_warp = warp / dq_row_warps;
  float dQ[row_tiles][pieces * 2][4] = {};
  TileOperand<Side::A, Inner::rows, ScoreTile, row_tiles, dq_row_warps> a(ds_tile, row_warp);
  TileOperand<Side::B, Inner::rows, KTile, pieces, dq_column_warps> b(K, column_warp);
  multiply<variant::dtype, variant::B_c / 16>(dQ, a, b);
#pragma unroll
  for (u32 i = 0; i < row_tiles; ++i) {
    const i64 row = workspace_row + (i * dq_row_warps + row_warp) * 16;
#pragma unroll
    for (u32 n = 0; n < pieces * 2; ++n) {
      float* const to = dq_piece(params, row, (n / 2 * dq_column_warps + column_warp) * 2 + n % 2);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) add_global(to + e * warp_size, dQ[i][n][e]);
    }
  }
}

// Writes the block's rows of dK and dV by way of the tiles of K and V, which nobody uses any more. Where they go is
// worked out again here, so that the main loop need not keep it.
__device__ __forceinline__ void store(const AttuneBackwardParams& params, const KGradient& dK, const KGradient& dV,
                                      const KTile& K, const KTile& V) {
  const u32 warp = warp_index();
  const u32 warp_key = warp % key_warps * (16 * key_tiles);
  put_accumulators<variant::dtype, column_warps>(dK, params.scale, K, warp_key, warp / key_warps);
  put_accumulators<variant::dtype, column_warps>(dV, 1.0f, V, warp_key, warp / key_warps);
  block_barrier();
  const TileIndex tile =
      tile_index<false>(static_cast<u32>(params.heads_q / params.gqa_ratio), static_cast<u32>(params.batch));
  const Sequence sequence(params, tile.batch);
  const int first_key = tile.q_block * variant::B_c;
  store_tile<threads>(K, sequence.key_rows(params.dk, tile.head, params.head_dim), first_key);
  store_tile<threads>(V, sequence.key_rows(params.dv, tile.head, params.head_dim_v), first_key);
}

extern "C" __global__ void __launch_bounds__(threads)
    backward_sm80(const __grid_constant__ Select<variant::dropout, WithDropout<PlainParams>, PlainParams> params) {
  const int kv_heads = params.heads_q / params.gqa_ratio;
  const TileIndex tile = tile_index<false>(static_cast<u32>(kv_heads), static_cast<u32>(params.batch));
  if (!tile.exists) return;
  Sequence sequence(params, tile.batch);
  const int first_key = tile.q_block * variant::B_c;  // tiles are those of keys here
  if (first_key >= sequence.keys.count) return;       // the grid is made for the longest
  const ScoreRows score_rows = rows_of_head(sequence, tile.batch, tile.head * params.gqa_ratio, tile.head);
  if constexpr (variant::mask) keep_live_queries(sequence, score_rows, first_key);
  const PairMask<variant::causal, variant::window> mask(params, sequence);
  const int first_block = mask.first_query(first_key) / variant::B_r;
  const int end_block = (mask.query_limit(first_key + variant::B_c - 1) + variant::B_r - 1) / variant::B_r;

  const KTile K{shared_memory()};
  const KTile V{K.base + KTile::bytes};
  const ScoreTile p_tile{V.base + KTile::bytes};
  const ScoreTile ds_tile{p_tile.base + (exchanges ? ScoreTile::bytes : 0)};
  const u32 queries = ds_tile.base + (exchanges || !variant::deterministic ? ScoreTile::bytes : 0);
  Pipeline pipeline(params, sequence, queries, tile.head * params.gqa_ratio, params.gqa_ratio, first_block, end_block);
  const KCopy K_rows(sequence.key_rows(params.k, tile.head, params.head_dim), first_key);
  const KCopy V_rows(sequence.key_rows(params.v, tile.head, params.head_dim_v), first_key);
  K_rows.copy<false>(K);
  V_rows.copy<false>(V);
  pipeline.begin();

  const u32 warp = warp_index();
  const u32 warp_key = warp % key_warps * (16 * key_tiles);
  const u32 part = warp / key_warps;  // of the queries of scores, and of the columns of dK and dV
  const u32 warp_query = part * (16 * query_pieces);
  const int own_key = first_key + static_cast<int>(warp_key);

  KGradient dK = {};
  KGradient dV = {};
  for (int head = 0; head < params.gqa_ratio; ++head) {
    const Dropout dropped{dropout_of(params), tile.batch * params.heads_q + tile.head * params.gqa_ratio + head};
    for (int block = end_block - 1; block >= first_block; --block) {
      if constexpr (variant::mask) {
        if (!has_live_query(sequence, tile.head * params.gqa_ratio + head, block)) continue;
      }
      const QueryBlock<QTile> at = pipeline.wait();
      Scores S = {};
      Scores dP = {};
      {
        TileOperand<Side::A, Inner::columns, KTile, key_tiles> a(K, warp_key / 16);
        TileOperand<Side::B, Inner::columns, QTile, query_pieces> b(at.Q, warp_query / 16);
        multiply<variant::dtype, variant::head_dim / 16>(S, a, b);
      }
      {
        TileOperand<Side::A, Inner::columns, KTile, key_tiles> a(V, warp_key / 16);
        TileOperand<Side::B, Inner::columns, QTile, query_pieces> b(at.dO, warp_query / 16);
        multiply<variant::dtype, variant::head_dim / 16>(dP, a, b);
      }
      if constexpr (variant::softcap) {
#pragma unroll
        for (int i = 0; i < key_tiles; ++i) cap_scores(S[i], params.cap_scale);
      }
      const int own_query = block * variant::B_r + static_cast<int>(warp_query);
      if constexpr (variant::score || variant::mask) {
        ScoreRows of_head = score_rows;
        of_head.head += head;
        express_transposed(S, expressions_of(params), of_head, own_key, own_query);
      }
      if (!mask.is_full(own_query, 16 * query_pieces, own_key, 16 * key_tiles)) {
        mask_pairs<true>(mask, S, own_key, own_query);
      }
      const KeptWeights<true, key_tiles, query_pieces * 2> kept{dropped, own_key, own_query};
      if constexpr (variant::dropout) keep_gradients(dP, kept, dropped.scale);
      apply_softmax(S, dP, at.statistics + warp_query * 2 * sizeof(float), params.scale_log2);
      if constexpr (variant::dropout) keep_weights(S, kept);

      Weights P(S, p_tile, warp_key, warp_query / 16);
      Weights dS(dP, ds_tile, warp_key, warp_query / 16);
      if constexpr (!exchanges && !variant::deterministic) {
        put_accumulators<variant::dtype, 1>(dP, 1.0f, ds_tile, warp_key, warp_query / 16);
      }
      if constexpr (exchanges || !variant::deterministic) block_barrier();
      {
        TileOperand<Side::B, Inner::rows, QTile, column_pieces, column_warps> b(at.dO, part);
        multiply<variant::dtype, variant::B_r / 16>(dV, P, b);
      }
      {
        TileOperand<Side::B, Inner::rows, QTile, column_pieces, column_warps> b(at.Q, part);
        multiply<variant::dtype, variant::B_r / 16>(dK, dS, b);
      }
      if constexpr (!variant::deterministic) {
        const int q_head = tile.head * params.gqa_ratio + head;
        add_dq<query_tiles / dq_row_warps, head_pieces / dq_column_warps>(
            params, K, ds_tile, sequence.workspace_row(params, q_head, block * variant::B_r), warp);
      }
    }
  }

  pipeline.end();
  if constexpr (variant::dropout) grow(dV, dropout_of(params).scale);
  store(params, dK, dV, K, V);
}
