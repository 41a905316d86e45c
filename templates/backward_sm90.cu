// FlashAttention-3 backward (arXiv 2407.08608) on wgmma and bulk tensor copies, compute capability 9.0: dK and dV, and
// sums that become dQ.
//
// A block owns B_c keys of one K/V head and walks the queries of the heads that share it, B_r at a time: all of them,
// or where tiles of keys are too few for a GPU a part, so that blocks sum dK and dV one after the other. One thread of
// the first warpgroup fetches K and V, then Q and dO with what is known of their rows, ahead; each of the others owns
// 64 keys. It computes scores transposed, S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T are in registers just as
// dV += P^T dO and dK += dS^T Q take them. dQ += dS K sums over the keys of all warpgroups: dS goes through shared
// memory, each warpgroup multiplies its part of dQ and adds it to the workspace, four floats of a lane at once.
//
// Beyond 128 columns dK and dV of 64 keys are more than a warpgroup's registers hold, and B_c is 64: both warpgroups
// share the keys, each has half of the queries of S^T and dP^T and half of the columns of dK, dV and dQ, and P^T goes
// through shared memory, too. There a step of 64 queries and 256 columns takes 2,560 clocks of the tensor cores and
// 4,350 of shared memory. Of dO one stage has room, which is free once dV is there; sums of dQ leave by halves, the
// second beside dP of the next queries.
//
// S of the next queries is issued before this step's dK is there, so that the tensor cores have products beside the
// additions to memory, and dP before the exponentials of S. For 64 keys and 64 queries the five products take 10 * D
// clocks of the tensor cores and the exponentials 256 of the special-function units. Shared memory is nearly as busy:
// S, dP and dQ have both operands there, and 64 x 64 x 16 reads in as many clocks as it multiplies.
#include "expressed_tensor_backward_params.h"
#include "tensor_backward_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 64;
constexpr int B_c = 128;
constexpr int stages = 2;
constexpr bool causal = false;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool ragged = false;
constexpr bool dropout = false;
constexpr bool deterministic = false;
}  // namespace variant

#include "blocks/backward_boxes.cuh"
#include "blocks/backward_rows.cuh"
#include "blocks/dq_sums.cuh"
#include "blocks/gradient_stage.cuh"
#include "blocks/gradient_sums.cuh"
#include "blocks/head_parts.cuh"
#include "blocks/pair_mask.cuh"
#include "blocks/panels.cuh"
#include "blocks/parted_panels.cuh"
#include "blocks/query_walk.cuh"
#include "blocks/ring.cuh"
#include "blocks/schedule.cuh"
#include "blocks/score_gradients.cuh"
#include "blocks/softcap.cuh"
#include "blocks/weight_dropout.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"

#include "blocks/express_pairs.cuh"
#include "blocks/expressions.cuh"
#include "blocks/live_queries.cuh"
#include "blocks/score_place.cuh"

using PlainParams =
    Select<variant::score || variant::mask, AttuneExpressedTensorBackwardParams, AttuneTensorBackwardParams>;
using Params = Select<variant::dropout, WithDropout<PlainParams>, PlainParams>;

constexpr int rows = 64;  // of a warpgroup: wgmma's
constexpr int consumers = 2;
constexpr int threads = (1 + consumers) * warpgroup_size;
constexpr u32 producer_registers = 24;
constexpr u32 consumer_registers = 240;

// Where the blocks of keys add to dQ in their order, each waits for those behind it, which start first: of a causal
// mask they begin with other queries than it does, so that nobody waits in vain.
constexpr bool shortest_first = variant::deterministic;

// What a warpgroup has besides dQ: all of its 64 keys, or of those that both share half of the queries in S and dP, and
// half of the columns of dK and dV.
constexpr bool shares_keys = variant::B_c == rows;
constexpr int sharers = shares_keys ? consumers : 1;
constexpr int score_queries = variant::B_r / sharers;
constexpr int gradient_columns = variant::head_dim / sharers;
static_assert(shares_keys || variant::B_c == consumers * rows);

// Where blocks add in an order, a turn lasts until sums are in memory and the next block has seen it, as long as a step
// of 64 queries. Two warps add, so that one waits for memory beside the other's: they have such steps in turn or, where
// sums leave in halves, ordered or not, a half each, whose turns are its own. Steps of 128 are longer, and have no
// registers left.
constexpr bool short_steps = variant::B_r == rows;
constexpr int adders = shares_keys || (variant::deterministic && short_steps) ? 2 : 1;
constexpr int turns_of_step = shares_keys ? adders : 1;

// Which part of dQ a warpgroup has: 64 rows, and as many columns as that leaves.
constexpr int dq_row_parts = variant::B_r / rows;
constexpr int dq_columns = variant::head_dim * dq_row_parts / consumers;
constexpr int dq_column_parts = consumers / dq_row_parts;
static_assert(variant::B_r % rows == 0 && dq_columns % 16 == 0);

// Whether the columns of its parts are whole panels, so that tiles which are read by parts lie as others do.
constexpr int panel_columns = 64;
constexpr bool dq_has_panels = variant::head_dim * variant::B_r % (consumers * rows * panel_columns) == 0;
constexpr bool gradients_have_panels = variant::head_dim % (consumers * panel_columns) == 0;

using Sequence = BackwardSequence<variant::ragged>;
using Mask = PairMask<variant::causal, variant::window>;
using KTile = Select<dq_has_panels, Panels<variant::B_c, variant::head_dim>,
                     PartedPanels<variant::B_c, variant::head_dim, dq_column_parts>>;
using QTile = Select<!shares_keys || gradients_have_panels, Panels<variant::B_r, variant::head_dim>,
                     PartedPanels<variant::B_r, variant::head_dim, sharers>>;
using GradientTile = Panels<variant::B_c, variant::head_dim>;
using ScoreTile = Panels<variant::B_c, variant::B_r>;  // transposed
using Queries = QueryStage<QTile>;
using KRing = Ring<KTile, 1, consumers * 4>;
using QRing = Ring<Queries, variant::stages, consumers * 4>;
using dORing = Ring<QTile, shares_keys ? 1 : variant::stages, consumers * 4>;

using Scores = float[score_queries / 8][4];
using Weights = u32[score_queries / 16][4];
using KGradient = float[gradient_columns / 8][4];
using QGradient = float[dq_columns / 8][4];
using Live = LiveQueries<variant::B_r, variant::B_c>;
using Walk = Select<variant::mask, LiveWalk<Live>, QueryWalk>;
using SumStage = Select<shares_keys, HalvedSums<4 * consumers, dq_columns / 8, consumers * warpgroup_size>,
                        GradientSums<variant::B_r * variant::head_dim, consumers * warpgroup_size, adders>>;
using Turn = Select<variant::deterministic, GradientTurn<variant::B_r, variant::B_c, turns_of_step>, AnyTurn>;
constexpr u32 scores_read = SumStage::next_barrier;  // named barriers: by the other warpgroup, for each one's next

// What lies in shared memory, from a 1024-byte aligned address on: tiles of K, V, Q and dO, two of dS, or of shared
// keys one of P and one of dS, sums, barriers.
struct Shared {
  KRing k;
  KRing v;
  QRing q;
  dORing dout;
  u32 scores;
  u32 sums;  // of dQ, on their way to memory

  __device__ __forceinline__ explicit Shared(u32 base)
      : k{base, base + 2 * KRing::bytes + QRing::bytes + dORing::bytes + 2 * ScoreTile::bytes + SumStage::bytes},
        v{k.tiles + KRing::bytes, k.barriers + KRing::barrier_bytes},
        q{v.tiles + KRing::bytes, v.barriers + KRing::barrier_bytes},
        dout{q.tiles + QRing::bytes, q.barriers + QRing::barrier_bytes},
        scores(dout.tiles + dORing::bytes),
        sums(scores + 2 * ScoreTile::bytes) {}
};

// One thread: fetches what the consumers read, in their order.
__device__ __forceinline__ void produce(const Params& params, Shared shared, const Sequence& sequence,
                                        const TileIndex& tile, Walk walk) {
  const int first_key = tile.q_block * variant::B_c;
  if (!walk.goes_on()) return;
  shared.k.begin_load();
  shared.k.load(params.k_map, key_box(sequence, tile.head, first_key));
  shared.v.begin_load();
  shared.v.load(params.v_map, key_box(sequence, tile.head, first_key));
  for (; walk.goes_on(); walk.next()) {
    const int first_query = walk.block * variant::B_r;
    const auto box = query_box(sequence, walk.head, first_query);
    shared.q.claim();
    shared.q.announce(Queries::copied_bytes);
    const Queries stage = shared.q.tile();
    load_bytes(stage.statistics(), params.statistics + 2 * sequence.workspace_row(params, walk.head, first_query),
               Queries::statistics_bytes, shared.q.full());
    stage.Q().load(params.q_map, shared.q.full(), box);
    shared.q.next();
    shared.dout.begin_load();
    shared.dout.load(params.dout_map, box);
  }
}

// S = A B^T of this warpgroup's keys and queries, under way.
__device__ __forceinline__ void multiply_scores(Scores& S, KTile keys, u32 warpgroup, QTile queries) {
  const int share = static_cast<int>(warpgroup);
  wgmma_fence();
  wgmma<variant::dtype, false, QTile::columns_right, KTile::columns_right, 0, variant::head_dim / 16>(
      S, keys.descriptor(shares_keys ? 0 : share * rows), queries.descriptor(shares_keys ? share * score_queries : 0),
      false);
  wgmma_commit();
}

// D += W X of this warpgroup's keys, X the rows of a tile, under way.
__device__ __forceinline__ void add_weighted(KGradient& D, const Weights& W, QTile X) {
  wgmma_fence();
  wgmma<variant::dtype, true, QTile::rows_down>(D, W, X.descriptor(0), true);
  wgmma_commit();
}

// This warpgroup's columns of D += W X, W in shared memory, X the rows of a tile, under way.
template <class Gradient>
__device__ __forceinline__ void add_shared(Gradient& D, ScoreTile W, u32 warpgroup, QTile X) {
  wgmma_fence();
  wgmma<variant::dtype, true, QTile::rows_down, ScoreTile::columns_right, 0, variant::B_r / 16>(
      D, W.descriptor(0), X.panel(warpgroup * (QTile::count / sharers)), true);
  wgmma_commit();
}

// This warpgroup's part of dQ = dS K, under way.
__device__ __forceinline__ void multiply_dq(QGradient& dQ, ScoreTile scores, KTile keys, u32 warpgroup) {
  const u32 row_part = warpgroup % dq_row_parts;
  const u32 column_part = warpgroup / dq_row_parts;
  wgmma_fence();
  wgmma_transposed<variant::dtype, true, KTile::rows_down, ScoreTile::rows_down, 0, variant::B_c / 16>(
      dQ, scores.panel(row_part), keys.panel(column_part * (KTile::count / dq_column_parts)), false);
  wgmma_commit();
}

// A warp: adds what the warpgroups put into the stage to the workspace, one step after the other, or of several warps
// the steps or the half of each that are its own.
__device__ __forceinline__ void add_dq(const Params& params, Shared shared, const Sequence& sequence,
                                       const TileIndex& tile, Walk walk, u32 adder) {
  const SumStage stage{shared.sums};
  constexpr bool has_steps = adders > 1 && !shares_keys;  // in turn, not all
  if constexpr (has_steps) {
    if (adder == 1 && walk.goes_on()) walk.next();
  }
  while (walk.goes_on()) {
    const i64 row = sequence.workspace_row(params, walk.head, walk.block * variant::B_r);
    Turn turn(params, Mask(params, sequence), row, walk.block, tile.q_block, shares_keys ? adder : 0);
    if constexpr (variant::mask && variant::deterministic) {
      count_live_blocks(turn, Mask(params, sequence), walk, tile.q_block);
    }
    turn.wait();
    stage.wait_full(adder);
    if (elect_lane()) {
      float* const sums = params.dq_sums + row * params.dq_columns;
      if constexpr (shares_keys) {
        add_half(stage, sums, static_cast<int>(adder));
      } else {
        stage.add(sums);
      }
      wait_boxes_read();
    }
    walk.next();
    if constexpr (shares_keys) {
      if (adder == 0 || walk.goes_on()) stage.announce_free(adder);  // a second half follows a first
    } else {
      if (walk.goes_on()) stage.announce_free(adder);
    }
    if (elect_lane()) turn.pass();
    if constexpr (has_steps) {
      if (walk.goes_on()) walk.next();
    }
  }
}

// A warpgroup: its keys.
__device__ __forceinline__ void consume(const Params& params, Shared shared, const Sequence& sequence,
                                        const HeadPart& part, Walk walk) {
  const TileIndex& tile = part.tile;
  const u32 warpgroup = warp_index() / 4 - 1;
  const u32 warp_key = (shares_keys ? 0 : warpgroup * rows) + warp_index() % 4 * 16;
  const u32 warp_query = shares_keys ? warpgroup * score_queries : 0;
  const int own_key = tile.q_block * variant::B_c + static_cast<int>(warp_key);
  const Mask mask(params, sequence);
  KGradient dK = {};
  KGradient dV = {};
  float S[1][score_queries / 8][4];
  float dP[1][score_queries / 8][4];
  QGradient dQ;
  const SumStage stage{shared.sums};
  const u32 first_part = ((warpgroup % dq_row_parts * 4 + warp_index() % 4) * (variant::head_dim / 8) +
                          warpgroup / dq_row_parts * (dq_columns / 8)) *
                         SumStage::part_bytes;
  bool is_next = false;  // a step behind the first, whose sums have to leave the stage
  Weights P, dS;
  u32 scores_tile = 0;  // of two, which take turns
  const Dropout dropped{dropout_of(params), tile.batch * params.heads_q};

  // S of the queries that are there, under way.
  const auto multiply_S = [&] { multiply_scores(S[0], shared.k.tile(), warpgroup, shared.q.tile().Q()); };
  // The rest of a step's sums, beside products of the next.
  const auto put_second_half = [&] {
    if constexpr (shares_keys) {
      stage.wait_free(0);
      put_half<1>(stage, dQ, first_part);
    }
  };
  // From S, which is under way, to P and dS, beside dP.
  const auto finish_weights = [&] {
    const u32 statistics = shared.q.tile().statistics() + warp_query * 2 * sizeof(float);
    shared.dout.wait();
    multiply_scores(dP[0], shared.v.tile(), warpgroup, shared.dout.tile());
    wgmma_wait<1>();
    settle(S[0]);
    const int first_query = walk.block * variant::B_r + static_cast<int>(warp_query);
    if constexpr (variant::softcap) cap_scores(S[0], params.cap_scale);
    if constexpr (variant::score || variant::mask) {
      express_transposed(S, expressions_of(params), rows_of_head(sequence, tile.batch, walk.head, tile.head), own_key,
                         first_query);
    }
    if (!mask.is_full(first_query, score_queries, own_key, 16)) mask_pairs<true>(mask, S, own_key, first_query);
    if constexpr (!variant::softcap) scores_to_weights(S[0], statistics, params.scale_log2);
    const KeptWeights<true, 1, score_queries / 8> kept{dropped.of_head(walk.head), own_key, first_query};
    if constexpr (shares_keys) {
      if (is_next) put_second_half();
    }
    wgmma_wait<0>();
    settle(dP[0]);
    if constexpr (variant::dropout) keep_gradients(dP, kept, dropped.scale);
    if constexpr (variant::softcap) {
      capped_gradients(S[0], dP[0], statistics, params.scale_log2);
    } else {
      weights_to_gradients(S[0], dP[0], statistics);
    }
    if constexpr (variant::dropout) keep_weights(S, kept);
    pack_weights<variant::dtype>(P, S[0]);
    pack_weights<variant::dtype>(dS, dP[0]);
  };

  if (walk.goes_on()) {
    settle(dK);
    settle(dV);
    shared.k.wait();
    shared.q.wait();
    multiply_S();
    shared.v.wait();
    finish_weights();
    while (true) {
      const QRing used = shared.q;
      if constexpr (shares_keys) {
        const ScoreTile weights{shared.scores};
        const ScoreTile gradients{shared.scores + ScoreTile::bytes};
        if (is_next) named_barrier_wait(scores_read + warpgroup, consumers * warpgroup_size);
        put_part(weights, warp_key, warp_query / 16, P);
        put_part(gradients, warp_key, warp_query / 16, dS);
        fence_for_copies();
        named_barrier_wait(1, consumers * warpgroup_size);
        add_shared(dV, weights, warpgroup, shared.dout.tile());
        multiply_dq(dQ, gradients, shared.k.tile(), warpgroup);
        add_shared(dK, gradients, warpgroup, shared.q.tile().Q());
        wgmma_wait<2>();
        shared.dout.release();
        wgmma_wait<1>();
        settle(dQ);
        if (is_next) stage.wait_free(1);
        put_half<0>(stage, dQ, first_part);
      } else {
        add_weighted(dV, P, shared.dout.tile());
        const ScoreTile scores{shared.scores + scores_tile * ScoreTile::bytes};
        put_weights(scores, warp_key, dS);
        fence_for_copies();
        named_barrier_wait(1, consumers * warpgroup_size);
        multiply_dq(dQ, scores, shared.k.tile(), warpgroup);
        add_weighted(dK, dS, shared.q.tile().Q());
        wgmma_wait<1>();
        settle(dQ);
        shared.dout.release();
        const u32 adder = adders > 1 ? scores_tile : 0;
        if (is_next) stage.wait_free(adders > 1 ? adder ^ 1 : 0);
        stage.put(dQ, first_part, adder);
      }
      is_next = true;
      walk.next();
      if (!walk.goes_on()) break;
      shared.dout.next();
      shared.q.next();
      shared.q.wait();
      multiply_S();
      wgmma_wait<1>();
      used.release();
      if constexpr (shares_keys) {
        named_barrier_announce(scores_read + 1 - warpgroup, consumers * warpgroup_size);
      }
      finish_weights();
      if constexpr (!shares_keys) scores_tile ^= 1;
    }
    if constexpr (shares_keys) put_second_half();
    wgmma_wait<0>();
    settle(dK);
    settle(dV);
  }
  if (!gather_parts<consumers * 4>(params, part, warp_index() - 4, dK, dV)) return;
  if constexpr (variant::dropout) grow(dV, dropout_of(params).scale);
  named_barrier_wait(1, consumers * warpgroup_size);  // K and V have been read: their places take dK and dV
  const GradientTile dK_tile{shared.k.tile().base};
  const GradientTile dV_tile{shared.v.tile().base};
  if constexpr (shares_keys) {
    const auto box = key_box(sequence, tile.head, tile.q_block * variant::B_c);
    const SharedGradientStage<variant::B_c, variant::head_dim> output{warp_key, warpgroup, 1};
    output.put<variant::dtype>(dK, params.scale, dK_tile);
    output.put<variant::dtype>(dV, 1.0f, dV_tile);
    if (warpgroup == 0) {
      output.store(dK_tile, params.dk_map, box);
    } else {
      output.store(dV_tile, params.dv_map, box);
    }
  } else {
    const auto box = key_box(sequence, tile.head, tile.q_block * variant::B_c + static_cast<int>(warpgroup) * rows);
    const GradientStage<variant::B_c, variant::head_dim> output{warp_key, SumStage::next_barrier + warpgroup};
    output.store<variant::dtype>(dK, params.scale, dK_tile, params.dk_map, box);
    output.store<variant::dtype>(dV, 1.0f, dV_tile, params.dv_map, box);
    output.finish();
  }
}

extern "C" __global__ void __launch_bounds__(threads, 1) backward_sm90(const __grid_constant__ Params params) {
  const int kv_heads = params.heads_q / params.gqa_ratio;
  const HeadPart part(params, tile_index<shortest_first>(static_cast<u32>(kv_heads),
                                                         static_cast<u32>(params.batch * params.head_parts)));
  const TileIndex& tile = part.tile;
  if (!tile.exists) return;
  const Sequence sequence(params, tile.batch);
  const int first_key = tile.q_block * variant::B_c;  // tiles are those of keys here
  if (first_key >= sequence.keys.count) return;       // the grid is made for the longest
  const Mask mask(params, sequence);
  Walk walk(part.first_head, part.heads, mask.first_query(first_key) / variant::B_r,
            (mask.query_limit(first_key + variant::B_c - 1) + variant::B_r - 1) / variant::B_r);
  if constexpr (variant::mask) {
    walk_live(walk, rows_of_head(sequence, tile.batch, tile.head * params.gqa_ratio, tile.head), first_key);
  }

  const Shared shared((shared_memory() + 1023) / 1024 * 1024);
  if (thread_index() == 0) {
    shared.k.create();
    shared.v.create();
    shared.q.create();
    shared.dout.create();
    mbarrier_fence();
  }
  block_barrier();
  if (warp_index() < 4) {
    give_registers<producer_registers>();
    if (warp_index() == 0 && elect_lane()) produce(params, shared, sequence, tile, walk);
    if (warp_index() >= 1 && warp_index() <= adders) {
      add_dq(params, shared, sequence, tile, walk, adders > 1 ? warp_index() - 1 : 0);
    }
  } else {
    take_registers<consumer_registers>();
    consume(params, shared, sequence, part, walk);
  }
}
