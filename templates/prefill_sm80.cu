// FlashAttention-2 forward (arXiv 2307.08691) on mma.sync and cp.async, compute capability 8.0 and newer.
//
// A block owns B_r queries of one head; each warp owns B_r / warps of them and the block walks the keys B_c at
// a time, from the last visible block down so that masking is over first.
//
// Which unit limits it, for one warp, 16 queries, 64 keys and head_dim D: the two products are D mma.sync of
// m16n8k16, at best one every 8 clocks of a quarter of a multiprocessor on 8.0 (about 6.4 on 9.0); the exponentials
// are 32 MUFU instructions of 8 clocks. On 9.0 that is 410 against 256 clocks at D = 64 and 820 against 256 at D = 128:
// tensor cores limit, and the softmax has to run in their shadow. So two warps share each quarter (4 warps a block, two
// blocks a multiprocessor), one multiplying while the other exponentiates, and O and l are rescaled only in blocks that
// bring some row a new maximum.
//
// Shared memory delivers 128 bytes a clock to all four quarters. Each warp reads all of K and V as fragments, 256 * D
// bytes: 8 * D clocks for four warps, no less than the products of one 16-row tile take. So a warp holds two such tiles
// (B_r = 32 * warps) and uses every fragment twice. O and S then take B_r * (D + B_c) / (32 * warps) registers a
// thread, 192 at D = 128 and B_c = 64, which with fragments and addresses fills the 255 there are. Beyond D = 128 only
// one row tile fits, and shared memory limits.
#include "expressed_params.h"
#include "params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 128;
constexpr int B_c = 64;
constexpr int warps = 4;
constexpr int stages = 2;
constexpr bool paged = false;
constexpr bool causal = false;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool sink = false;
constexpr bool ragged = false;
constexpr bool dropout = false;
constexpr bool cut_rows = false;
constexpr int gqa_ratio = 0;
constexpr bool async_copy = true;
constexpr bool eager_load = true;
constexpr bool swizzle = true;
constexpr bool Q_in_registers = false;
constexpr int Q_fragment_tiles = 1;
constexpr int K_fragment_tiles = 1;
constexpr int V_fragment_tiles = 1;
constexpr bool double_buffer = true;
constexpr Rescale rescale = Rescale::on_new_max;
}  // namespace variant

#include "blocks/copy.cuh"
#include "blocks/lse_places.cuh"
#include "blocks/mask.cuh"
#include "blocks/matrix_rows.cuh"
#include "blocks/matrix_source.cuh"
#include "blocks/multiply.cuh"
#include "blocks/page_source.cuh"
#include "blocks/pipeline.cuh"
#include "blocks/schedule.cuh"
#include "blocks/scores.cuh"
#include "blocks/softmax.cuh"
#include "blocks/store.cuh"
#include "blocks/tile.cuh"
#include "blocks/weight_dropout.cuh"
#include "ptx/thread.cuh"

#include "blocks/express_scores.cuh"
#include "blocks/expressions.cuh"
#include "blocks/live_blocks.cuh"
#include "blocks/live_source.cuh"
#include "blocks/score_place.cuh"
#include "blocks/sink.cuh"
#include "blocks/told_blocks.cuh"

using PlainParams = Select<variant::sink, AttuneExpressedPrefillParams,
                           Select<variant::score || variant::mask, AttuneExpressedPrefillParams, AttunePrefillParams>>;

constexpr int threads = variant::warps * warp_size;
constexpr int row_tiles = variant::B_r / (16 * variant::warps);  // 16-row tiles of a warp
constexpr int key_pairs = variant::B_c / 16;                     // 16-key pieces of a block
constexpr int head_pairs = variant::head_dim / 16;               // 16-wide pieces of a row

// A knob of 0 loads all fragments at once.
__device__ constexpr int step(int knob, int tiles) { return knob == 0 ? tiles : knob; }

using QTile = Tile<variant::B_r, variant::head_dim, variant::swizzle>;
using KVTile = Tile<variant::B_c, variant::head_dim, variant::swizzle>;
using QStream = FragmentStream<QTile, head_pairs, row_tiles, step(variant::Q_fragment_tiles, head_pairs),
                               variant::double_buffer, true>;
using KStream = FragmentStream<KVTile, head_pairs, key_pairs, step(variant::K_fragment_tiles, head_pairs),
                               variant::double_buffer, true>;
using VStream = FragmentStream<KVTile, key_pairs, head_pairs, step(variant::V_fragment_tiles, key_pairs),
                               variant::double_buffer, false>;
using Sequence = Select<variant::ragged, RaggedSequence, DenseSequence>;
using KeyMask = Select<variant::window, Window, Select<variant::causal, CausalMask, FullMask>>;
using AllBlocks = Select<variant::paged, PageSource<KVTile, threads, variant::async_copy, variant::cut_rows>,
                         MatrixSource<KVTile, threads, variant::async_copy, variant::cut_rows>>;
using Live = Select<Expressions::told, ToldBlocks<variant::B_r>, LiveBlocks<variant::B_r, variant::B_c>>;
using Source = Select<variant::mask, LiveSource<variant::paged, AllBlocks, Live>, AllBlocks>;
using Pipeline = KVPipeline<Source, variant::stages, variant::async_copy, variant::eager_load>;

static_assert(variant::B_r % (16 * variant::warps) == 0 && variant::B_c % 16 == 0 && variant::head_dim % 16 == 0);

// How many keys the sequence has.
__device__ __forceinline__ int keys_of(const AttunePrefillParams& params, const Sequence& sequence) {
  if constexpr (variant::paged) {
    return keys_in_pages(params, sequence.batch);
  } else {
    return sequence.keys(params);
  }
}

// Writes this warp's rows. Where they go is worked out again here, so that the main loop need not keep it.
template <int columns>
__device__ __forceinline__ void store(const AttunePrefillParams& params, const float (&O)[row_tiles][columns][4],
                                      const float (&inverse_l)[row_tiles][2], const float (&lse)[row_tiles][2]) {
  const TileIndex tile = tile_index<variant::causal>(params.heads_q, params.batch);
  const u32 warp_row = warp_index() * (row_tiles * 16);
  const Sequence sequence(params, tile.batch);
  const int first_row = tile.q_block * variant::B_r + static_cast<int>(warp_row);
  store_rows<variant::dtype>(O, inverse_l, QTile{shared_memory()}, warp_row,
                             sequence.query_rows(params, params.o, tile.head), first_row);
  if (params.lse == nullptr) return;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) store_lse(lse[i], first_row + i * 16, sequence.lse(params, tile.head));
}

extern "C" __global__ void __launch_bounds__(threads)
    prefill_sm80(const __grid_constant__ Select<variant::dropout, WithDropout<PlainParams>, PlainParams> params) {
  const TileIndex tile = tile_index<variant::causal>(params.heads_q, params.batch);
  if (!tile.exists) return;
  const Sequence sequence(params, tile.batch);
  const int first_query = tile.q_block * variant::B_r;
  if constexpr (variant::ragged) {
    // The grid is made for the longest, and short ones may be another kernel's.
    if (first_query >= sequence.queries(params) || sequence.queries(params) < params.fewest_queries) return;
  }
  const int kv_head = tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
  const Matrix Q_rows = sequence.query_rows(params, params.q, tile.head);
  const int keys = keys_of(params, sequence);

  const u32 warp_row = warp_index() * (row_tiles * 16);
  const int first_row = first_query + static_cast<int>(warp_row);
  const KeyMask mask = KeyMask::of(params, Q_rows.rows, keys);
  int blocks = blocks_reaching(mask.limit(first_query + variant::B_r - 1), variant::B_c);
  int first_key = 0;  // no row of the tile sees those before it
  if constexpr (variant::window) {
    const int first_block = first_block_seen(mask, first_query, variant::B_c);
    blocks -= first_block;
    first_key = first_block * variant::B_c;
  }
  const ScoreRows score_rows{tile.batch, tile.head, kv_head, 1, keys - Q_rows.rows, 0};
  Live live{params, score_rows, tile.head, first_query};
  const int lowest = first_key / variant::B_c;
  int block = lowest + blocks - 1;  // the one of S
  if constexpr (variant::mask) {
    block = live.last(block, lowest - 1);
    blocks = live.count(lowest, block);
    first_key = (block + 1 - blocks) * variant::B_c;
  }

  const QTile q_tile{shared_memory()};
  const Source source(params, sequence, kv_head, keys, first_key + (blocks - 1) * variant::B_c);
  Pipeline pipeline(q_tile.base + QTile::bytes, source, blocks);
  if constexpr (variant::mask) follow_live(pipeline.source, live, lowest, block);
  TileCopy<QTile, threads, variant::async_copy>(Q_rows, first_query).copy<false>(q_tile);
  pipeline.begin();

  const u32 q_lane = lane_address_rows_first(q_tile, warp_row);
  QStream Q;
  if constexpr (variant::Q_in_registers) {
    pipeline.wait_for_Q();
    Q.advance(q_tile, q_lane, 0);
  }

  const Dropout dropped{dropout_of(params), tile.batch * params.heads_q + tile.head};
  OnlineSoftmax<row_tiles, variant::score> softmax;
  float O[row_tiles][head_pairs * 2][4] = {};
  for (int j = blocks - 1; j >= 0; --j) {
    float S[row_tiles][key_pairs * 2][4] = {};
    const KVTile k_tile = pipeline.wait_for_K(j);
    const u32 k_lane = lane_address_columns_first(k_tile, 0);
    KStream K;
    if constexpr (!variant::Q_in_registers) Q.begin(q_tile, q_lane);
    K.begin(k_tile, k_lane);
#pragma unroll
    for (int d = 0; d < head_pairs; ++d) {
      if constexpr (!variant::Q_in_registers) Q.advance(q_tile, q_lane, d);
      K.advance(k_tile, k_lane, d);
      multiply_step<variant::dtype>(S, Q, K, d);
    }
    if constexpr (variant::mask) {
      express_scores(S, expressions_of(params), score_rows, mask, {first_row, first_key + j * variant::B_c},
                     params.cap_scale, live.is_full(block));
    } else if constexpr (variant::score) {
      express_scores(S, expressions_of(params), score_rows, mask, {first_row, first_key + j * variant::B_c},
                     params.cap_scale);
    } else {
      finish_scores(S, mask, {first_row, first_key + j * variant::B_c}, params.cap_scale);
    }

    const KVTile v_tile = pipeline.wait_for_V(j);
    softmax.update<variant::rescale>(S, O, params.scale_log2, j == blocks - 1);
    if constexpr (variant::dropout) {
      const int key = first_key + j * variant::B_c;
      keep_weights(S, KeptWeights<false, row_tiles, key_pairs * 2>(dropped, first_row, key));
    }

    const PackedP<variant::dtype, row_tiles, key_pairs> P(S);
    const u32 v_lane = lane_address_rows_first(v_tile, 0);
    VStream V;
    V.begin(v_tile, v_lane);
#pragma unroll
    for (int k = 0; k < key_pairs; ++k) {
      V.advance(v_tile, v_lane, k);
      multiply_step<variant::dtype>(O, P, V, k);
    }
    pipeline.done_with_V(j);
    if constexpr (variant::mask) {  // so that first_key + (j - 1) * B_c is where the next one begins
      const int next = live.last(block - 1, lowest);
      first_key -= (block - 1 - next) * variant::B_c;
      block = next;
    }
  }

  pipeline.end();

  float inverse_l[row_tiles][2];
  float lse[row_tiles][2];
  softmax.finish(inverse_l, lse, params.scale_log2);
  if constexpr (variant::sink) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) join_sinks(inverse_l[i], lse[i], params, score_rows, first_row + i * 16);
  }
  if constexpr (variant::dropout) grow(inverse_l, dropped.scale);
  store(params, O, inverse_l, lse);
}
