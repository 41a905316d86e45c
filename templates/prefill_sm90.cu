// FlashAttention-3 forward (arXiv 2407.08608) on wgmma and bulk tensor copies, compute capability 9.0.
//
// A block stays on its multiprocessor and computes tile after tile of B_r rows. One thread of the first warpgroup
// fetches Q, K and V ahead; each of the others owns 64 rows of the tile and walks the keys B_c at a time, from the last
// visible block down so that masking is over first. In each step it issues S = Q K^T for the next block, then O += P V
// for the block before, and turns S into the next P while V is being multiplied. The next Q arrives while O is stored.
// For 64 queries and 64 keys the products take 4 * D clocks of the tensor cores, the exponentials 256 of the special-
// function units: both limit it at D = 64, the products beyond, and a softmax has to hide behind other warpgroups'
// products: prefill_sm90.md.
#include "expressed_tensor_params.h"
#include "paged_params.h"
#include "stacked_params.h"
#include "tensor_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int head_dim_v = 0;
constexpr int B_r = 128;
constexpr int B_c = 128;
constexpr int stages = 2;
constexpr int Q_columns_in_registers = 64;
constexpr int P_residual_keys = 16;
constexpr bool paged = false;
constexpr int page_multiple = 1;
constexpr bool causal = true;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool sink = false;
constexpr bool ragged = false;
constexpr bool dropout = false;
constexpr int gqa_ratio = 0;
constexpr bool pack_gqa = false;
constexpr bool ping_pong = false;
constexpr int rescale_bound = 0;
constexpr bool tile_list = false;
constexpr bool stream_k = false;
}  // namespace variant

#include "blocks/lazy_softmax.cuh"
#include "blocks/list_order.cuh"
#include "blocks/lse_places.cuh"
#include "blocks/mask.cuh"
#include "blocks/no_turns.cuh"
#include "blocks/panels.cuh"
#include "blocks/query_product.cuh"
#include "blocks/ragged_order.cuh"
#include "blocks/ragged_rows.cuh"
#include "blocks/residual.cuh"
#include "blocks/ring.cuh"
#include "blocks/scores.cuh"
#include "blocks/shared_order.cuh"
#include "blocks/tensor_rows.cuh"
#include "blocks/tile_order.cuh"
#include "blocks/told_order.cuh"
#include "blocks/turns.cuh"
#include "blocks/unfinished_tile.cuh"
#include "blocks/update.cuh"
#include "blocks/weight_dropout.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "shared_tiles.h"
#include "tile_list.h"

#include "blocks/drawn_order.cuh"
#include "blocks/express_scores.cuh"
#include "blocks/expressions.cuh"
#include "blocks/key_block.cuh"
#include "blocks/live_blocks.cuh"
#include "blocks/page_boxes.cuh"
#include "blocks/page_gather.cuh"
#include "blocks/paged_rows.cuh"
#include "blocks/score_rows.cuh"
#include "blocks/sink.cuh"
#include "blocks/sole_maps.cuh"
#include "blocks/stacked_rows.cuh"
#include "blocks/tilted_softmax.cuh"
#include "blocks/told_blocks.cuh"

// Whether a tile has the rows of all heads that share keys, where these are few.
constexpr bool stacks_heads = variant::ragged && !variant::paged && !variant::tile_list && !variant::score &&
                              !variant::mask && !variant::sink && !variant::dropout;

using SoleParams = Select<variant::score || variant::mask || variant::sink, AttuneExpressedTensorParams,
                          Select<stacks_heads, AttuneStackedPrefillParams, AttuneTensorPrefillParams>>;
using OrderedParams = Select<variant::tile_list && variant::score, AttuneListedExpressedParams,
                             Select<variant::tile_list && variant::sink, AttuneListedExpressedParams,
                                    Select<variant::stream_k, AttuneSharedPrefillParams,
                                           Select<variant::tile_list, AttuneListedPrefillParams, SoleParams>>>>;
using PlainParams = Select<variant::paged, WithPages<OrderedParams>, OrderedParams>;
using Params = Select<variant::dropout, WithDropout<PlainParams>, PlainParams>;

constexpr int O_columns = variant::head_dim_v == 0 ? variant::head_dim : variant::head_dim_v;  // and V's
constexpr int rows = 64;  // of a warpgroup: wgmma's
constexpr int consumers = variant::B_r / rows;
constexpr int threads = (1 + consumers) * warpgroup_size;
constexpr u32 producer_registers = consumers == 3 ? 32 : 24;
constexpr int loaders = variant::stages == 1 ? 1 : 3;  // warps that fetch keys from pages
constexpr u32 consumer_registers = consumers == 3 ? 160 : 240;
// Where lanes look up pages.
constexpr u32 page_producer_registers = consumers == 3 ? 32 : 40;
constexpr u32 page_consumer_registers = consumers == 3 ? 160 : 232;
static_assert(variant::B_r % rows == 0 && consumers <= 3);
// Keys of the product that a tile ends with, where every query sees the first ones: a step's.
constexpr int first_columns = 16;
// Whether a warp of its own finds the tiles, and tells them to the others.
constexpr bool finds_tiles = variant::ragged || variant::paged || variant::mask;

// What a row is and sees, and the order of tiles.
using QueryMask = Select<variant::window, Window, Select<variant::causal, CausalMask, FullMask>>;
using RowsInPages =
    PagedRows<Select<variant::pack_gqa, PackedRows<QueryMask, variant::gqa_ratio>, DenseRows<QueryMask>>>;
using Rows = Select<variant::ragged, Select<stacks_heads, StackedRows<QueryMask>, RaggedRows<QueryMask>>,
                    Select<variant::paged, RowsInPages,
                           Select<variant::pack_gqa, PackedRows<QueryMask, variant::gqa_ratio>, DenseRows<QueryMask>>>>;
using Maps = Select<stacks_heads, StackMaps, SoleMaps>;
using WholeTile = Select<Expressions::told, ToldTile, Select<variant::window || variant::mask, WindowTile, QueryTile>>;
using SequenceTile = Select<variant::stream_k, SharedTile, WholeTile>;
using TileInPages = PagedTile<SequenceTile>;
using Tile = Select<variant::paged, TileInPages, Select<variant::ragged, RaggedTile<SequenceTile>, SequenceTile>>;
using SequenceOrder = Select<variant::stream_k, SharedOrder<Rows, variant::B_r, variant::B_c, GivenShares>,
                             Select<variant::tile_list, ListOrder<Rows, variant::B_r, variant::B_c>,
                                    Select<Expressions::told, DrawnOrder<Rows, variant::B_r, variant::B_c>,
                                           RoundOrder<Rows, variant::B_r, variant::B_c>>>>;
using BatchOrder = Select<variant::tile_list, ListedRaggedOrder<Rows, variant::B_r, variant::B_c>,
                          RaggedOrder<Rows, variant::B_r, variant::B_c>>;
using OrderInPages = Select<variant::stream_k, PagedSharedOrder<Rows, variant::B_r, variant::B_c>,
                            PagedOrder<SequenceOrder, Rows, variant::B_r, variant::B_c>>;
using Order = Select<variant::ragged, BatchOrder, Select<variant::paged, OrderInPages, SequenceOrder>>;

using WarpLive = Select<Expressions::told, ToldBlocks<variant::B_r, true>, LiveBlocks<variant::B_r, variant::B_c>>;
using ThreadLive = Select<Expressions::told, ToldBlocks<variant::B_r>, LiveBlocks<variant::B_r, variant::B_c>>;

using QTile = Panels<variant::B_r, variant::head_dim>;
using KTile = Panels<variant::B_c, variant::head_dim>;
using VTile = Panels<variant::B_c, O_columns>;
using QRing = Ring<QTile, 1, consumers * 4>;
using KRing = Ring<KTile, variant::stages, consumers * 4>;
using VRing = Ring<VTile, variant::stages, consumers * 4>;
// Of a ragged batch's tiles so many are found ahead: a look at the next group's lengths takes as long as some short
// ones.
constexpr int tiles_ahead = 4;
using FoundAhead = Select<variant::paged, Ring<TileSlot, tiles_ahead, loaders>, Ring<TileSlot, tiles_ahead, 1>>;
using FoundInPages = Ring<TileSlot, 1, loaders>;
using FoundRing = Select<variant::ragged, FoundAhead, Select<variant::paged, FoundInPages, Ring<TileSlot, 1, 1>>>;
using KeySource = Select<variant::page_multiple == 1, PageGather<variant::B_c>, PageBoxes<variant::B_c>>;  // of pages
// Where a row of O is long, a second vote costs less than the multiplications that it saves.
using Softmax = Select<Expressions::tilts, TiltedSoftmax<variant::rescale_bound, O_columns <= 128 ? 2 : 1>,
                       LazySoftmax<variant::rescale_bound, O_columns <= 128 ? 2 : 1>>;
using Output = OutputStage<O_columns>;
using ProductTurns = Select<variant::ping_pong, Turns<consumers>, NoTurns>;
using Unfinished = UnfinishedTile<Params, O_columns, consumers * 4, Softmax>;

// What lies in shared memory, from a 1024-byte aligned address on: tiles of Q, K and V, parts of O, barriers.
struct Shared {
  QRing q;
  KRing k;
  VRing v;
  u32 output;  // of the first warpgroup

  __device__ __forceinline__ explicit Shared(u32 base)
      : q{base, base + QRing::bytes + KRing::bytes + VRing::bytes + consumers * Output::bytes},
        k{q.tiles + QRing::bytes, q.barriers + QRing::barrier_bytes},
        v{k.tiles + KRing::bytes, k.barriers + KRing::barrier_bytes},
        output(v.tiles + VRing::bytes) {}

  // Where a warp finds tiles: what is known of the one that Q is of, and of the one that was found for after it.
  __device__ __forceinline__ TileSlot told() const { return {v.barriers + VRing::barrier_bytes}; }
  __device__ __forceinline__ FoundRing found() const {
    if constexpr (variant::ragged) {
      return {told().base + TileSlot::bytes, told().base + TileSlot::bytes + FoundRing::bytes};
    } else {
      return {told().base + TileSlot::bytes, told().base + 2 * TileSlot::bytes};
    }
  }

  // Where a mask leaves some blocks of keys out: which one K's stage has.
  __device__ __forceinline__ KeyBlock key_block() const {
    return {found().barriers + FoundRing::barrier_bytes + k.stage * KeyBlock::bytes};
  }
};

// Which blocks of keys a mask's expression leaves to a tile; `Live` is WarpLive or ThreadLive.
template <class Live, class KernelParams>
__device__ __forceinline__ Live live_blocks(const KernelParams& params, const Tile& tile) {
  return {params, score_rows<Rows>(params, tile), tile.head, tile.first_row};
}

// The same of a tile that another warp may have found, with what that one was told.
template <class Live, class KernelParams>
__device__ __forceinline__ Live found_blocks(const KernelParams& params, const Tile& tile) {
  Live told_before = live_blocks<Live>(params, tile);
  if constexpr (Expressions::told) told_before.take(tile);
  return told_before;
}

// How the thread that fetches learns of its tiles: another warp finds them, or it does itself.
template <class KernelParams>
__device__ __forceinline__ auto producer_order(const KernelParams& params, const Shared& shared) {
  if constexpr (finds_tiles) {
    return FoundOrder<FoundRing>{shared.found()};
  } else {
    return Order(params);
  }
}

// One warp: finds tiles, ahead of the thread that fetches.
template <class KernelParams>
__device__ __forceinline__ void find_tiles(const KernelParams& params, FoundRing found) {
  Order order(params);
  Tile tile{};
  if constexpr (Expressions::told) found.claim();  // a tile is taken no earlier than the one before has been
  while (order.next(tile)) {
    if constexpr (variant::mask) {
      auto left_blocks = live_blocks<WarpLive>(params, tile);
      keep_live_blocks(left_blocks, tile);
      if constexpr (Expressions::told) left_blocks.tell(tile);
    }
    hand_over(found, tile);
    if constexpr (Expressions::told) found.claim();
  }
  hand_over(found, Tile{});
}

// One thread: fetches what the consumers' stream of blocks reads, in its order.
template <class KernelParams>
__device__ __forceinline__ void produce(const KernelParams& params, Shared shared) {
  auto order = producer_order(params, shared);
  Tile tile{};
  auto V_box = Rows::keys(tile, -1, 0);  // of the block before, whose V comes after the next K; of no head: none yet
  const auto load_V = [&] {
    if (V_box.z < 0) return;
    shared.v.begin_load();
    shared.v.load(params.v, V_box);
  };
  while (order.next(tile)) {
    auto live_keys = found_blocks<ThreadLive>(params, tile);
    const int kv_head = Rows::kv_head(params, tile);
    for (int j = tile.blocks - 1; j >= tile.first_block; --j) {
      if constexpr (variant::mask) {
        j = live_keys.last(j, tile.first_block);
        shared.k.claim();
        shared.key_block().write(j, live_keys.is_full(j));
        shared.k.announce();
      } else {
        shared.k.begin_load();
      }
      shared.k.load(params.k, Rows::keys(tile, kv_head, j * variant::B_c));
      load_V();
      if (j == tile.blocks - 1) {
        if constexpr (finds_tiles) {
          shared.q.claim();
          shared.told().write(tile);
          shared.q.announce(Maps::query_bytes<QTile>(params, tile));
        } else {
          shared.q.begin_load();
        }
        shared.q.load(Maps::queries(params, tile), Rows::queries(tile, tile.first_row));
      }
      V_box = Rows::keys(tile, kv_head, j * variant::B_c);
    }
    if constexpr (Expressions::first_keys != 0) {
      shared.k.begin_load();
      shared.k.load(params.k, Rows::keys(tile, kv_head, 0));
      load_V();
      V_box = Rows::keys(tile, kv_head, 0);
    }
  }
  load_V();
  if constexpr (finds_tiles) {  // a tile without blocks: there is none left
    shared.q.claim();
    shared.told().write(Tile{});
    shared.q.announce(0);
  }
}

// Until the K before the one that was just loaded has been read, of two stages: this warp's next K has that stage two
// rounds later, and parities tell one round from the next alone. It comes before the warp's V, without which consumers
// do not come as far as that next round.
__device__ __forceinline__ void claim_next_stage(KRing ring) {
  ring.next();
  ring.claim();
}

// Warps, where keys are in pages: they take blocks in turn, each the K and the V of one, so that one look at the table
// does for both, and no K waits behind a V whose stage is still being read. A warp looks up its pages a block ahead.
template <class KernelParams>
__device__ __forceinline__ void produce_pages(const KernelParams& params, Shared shared, u32 loader) {
  WarpFoundOrder<FoundRing> order{shared.found()};
  const KeySource source(params.pages);
  u32 others = loader;  // blocks that other warps take before this one's next
  Tile tile{};
  while (order.next(tile)) {
    if (loader == 0) {
      shared.q.claim();
      if (elect_lane()) {
        shared.told().write(tile);
        shared.q.announce();
        shared.q.tile().load(params.q, shared.q.full(), Rows::queries(tile, tile.first_row));
      }
      shared.q.next();
    }
    const int kv_head = Rows::kv_head(params, tile);
    auto live_pages = found_blocks<WarpLive>(params, tile);
    int block = tile.blocks - 1;
    auto pages = source.find(tile, block);
#pragma unroll 1
    while (block >= tile.first_block) {
      int below = block - 1;
      if constexpr (variant::mask) {
        if (block > tile.first_block) below = live_pages.last(below, tile.first_block);
      }
      if (others == 0) {
        if constexpr (variant::mask) {
          const bool full = live_pages.is_full(block);
          shared.k.claim();
          if (elect_lane()) shared.key_block().write(block, full);
          warp_barrier();  // whoever announces it, it is written
        }
        source.template load<Cached::K>(params, shared.k, tile, kv_head, block, pages);
        if constexpr (variant::stages == 2) claim_next_stage(shared.k);
        source.template load<Cached::V>(params, shared.v, tile, kv_head, block, pages);
        others = loaders;
      }
      --others;
      if (others == 0) pages = source.find(tile, below);
      shared.k.next();
      shared.v.next();
      block = below;
    }
  }
  if (loader != 0) return;
  shared.q.claim();
  if (elect_lane()) {
    shared.told().write(Tile{});
    shared.q.announce(0);
  }
}

// O = P V or, to `add`, O += P V, under way, of the block's first 16 * steps keys.
template <int steps>
__device__ __forceinline__ void multiply_PV(float (&O)[O_columns / 8][4], const u32 (&P)[steps][4], VTile v, bool add) {
  wgmma_fence();
  wgmma<variant::dtype, true, VTile::rows_down>(O, P, v.descriptor(0), add);
  wgmma_commit();
}

// The same where all weights of the warpgroup may be 0: then O is as it was, and the product is left out.
template <int steps>
__device__ __forceinline__ void multiply_weights(float (&O)[O_columns / 8][4], const u32 (&P)[steps][4], VTile v,
                                                 bool add, bool no_weight) {
  if (add && no_weight) {
    wgmma_commit();  // a group without products, as waits count groups
  } else {
    multiply_PV(O, P, v, add);
  }
}

// O and LSE of this warpgroup's rows, O under way.
__device__ __forceinline__ void store(const Params& params, const Output& output, const Tile& tile, u32 warpgroup,
                                      const float (&O)[O_columns / 8][4], const Softmax& softmax) {
  float inverse_l[2], lse[2];
  softmax.finish(inverse_l, lse);
  if constexpr (variant::dropout) {
    inverse_l[0] *= dropout_of(params).scale;
    inverse_l[1] *= dropout_of(params).scale;
  }
  const int first_row = tile.first_row + static_cast<int>(warpgroup) * rows;
  if constexpr (variant::sink) {
    join_sinks(inverse_l, lse, params, score_rows<Rows>(params, tile),
               first_row + static_cast<int>(warp_index() % 4) * 16);
  }
  output.store<variant::dtype>(O, inverse_l, Maps::outputs(params, tile), Rows::queries(tile, first_row));
  if (params.lse == nullptr) return;
  store_lse(lse, first_row + static_cast<int>(warp_index() % 4) * 16, Rows::lse(params, tile));
}

// How a consumer learns of its tiles: it is told them with Q, or finds them itself.
template <class KernelParams>
__device__ __forceinline__ auto consumer_order(const KernelParams& params, const Shared& shared) {
  if constexpr (finds_tiles) {
    return ToldOrder<QRing>{shared.q, shared.told()};
  } else {
    return Order(params);
  }
}

// A warpgroup: its rows of all tiles.
template <class KernelParams>
__device__ __forceinline__ void consume(const KernelParams& params, Shared shared) {
  const u32 warpgroup = warp_index() / 4 - 1;
  const Output output{shared.output + warpgroup * Output::bytes, 4 + warpgroup};  // barriers 1 to 3 are the turns'
  const int warp_row = static_cast<int>(warpgroup) * rows + static_cast<int>(warp_index() % 4) * 16;
  const Unfinished unfinished{params, block_number() * consumers * 4 + warp_index() - 4};
  const ProductTurns turns{warpgroup};
  auto order = consumer_order(params, shared);
  Tile tile{};
  u32 Q[Q_fragments][4];  // the first columns of this warp's rows
  bool skips_last = false;
  bool full = false;  // the block at hand: the mask hides nothing of it

  // Q is there; returns the block of keys to begin with.
  const auto begin_tile = [&] {
    if constexpr (!finds_tiles) shared.q.wait();
    if constexpr (variant::Q_columns_in_registers != 0) {
      const u32 own_row = static_cast<u32>(warp_row) + lane_index() % 16;
#pragma unroll
      for (u32 d = 0; d < Q_steps; ++d) ldmatrix(Q[d], shared.q.tile().chunk(own_row, 2 * d + lane_index() / 16));
      fence_for_copies();  // or the next Q might arrive before these loads have been carried out
      warp_barrier();      // lane 0 releases the stage for all
    }
    if constexpr (variant::Q_columns_in_registers == variant::head_dim) shared.q.release();
    if constexpr (variant::causal && variant::B_r > 64) {
      // A last block beyond this warpgroup's rows is only released, with a turn, so that warpgroups stay in step.
      const int last_row = tile.first_row + static_cast<int>(warpgroup + 1) * rows - 1;
      skips_last = blocks_seen<variant::B_c>(Rows::mask(params, tile), last_row) < tile.blocks;
      if constexpr (variant::mask) skips_last = skips_last && tile.first_block < tile.blocks - 1;  // it needs another
      if (skips_last) {
        shared.k.skip();
        turns.take();
        turns.pass();
        return tile.blocks - 2;
      }
    }
    return tile.blocks - 1;
  };
  // S of block j is there: its keys have been read, and with the tile's last block its queries.
  const auto take_S = [&](float(&S)[variant::B_c / 8][4], int j) {
    settle(S);
    shared.k.release();
    shared.k.next();
    shared.k.ask();
    if constexpr (variant::Q_columns_in_registers != variant::head_dim && Expressions::first_keys == 0) {
      shared.q.release(j == tile.first_block);
    }
  };
  const auto finish_S = [&](float(&S)[variant::B_c / 8][4], int j) {
    if constexpr (variant::mask) {
      express_scores(S, expressions_of(params), score_rows<Rows>(params, tile), Rows::mask(params, tile),
                     {tile.first_row + warp_row, j * variant::B_c}, params.cap_scale, full);
    } else if constexpr (variant::score && !Expressions::tilts) {
      express_scores(S, expressions_of(params), score_rows<Rows>(params, tile), Rows::mask(params, tile),
                     {tile.first_row + warp_row, j * variant::B_c}, params.cap_scale);
    } else {
      finish_scores(S, Rows::mask(params, tile), {tile.first_row + warp_row, j * variant::B_c}, params.cap_scale);
    }
  };

  // Which block K is of, where a mask leaves some out. Asked for while K is multiplied, it costs no time.
  const auto told_block = [&] {
    const u32 word = shared.key_block().read();
    full = KeyBlock::is_full(word);
    return KeyBlock::number(word);
  };

  // This warpgroup has no queries of the tile: it releases all that the others read, and keeps in step with them.
  const auto skip_tile = [&] {
    shared.q.release();
    shared.q.next();
    for (int j = tile.blocks; j != tile.first_block; --j) {
      shared.k.skip();
      turns.take();
      turns.pass();
      shared.v.skip();
    }
  };

  const u32 Q_tiles = shared.q.tiles;
  u32 sole_owner = 0;  // the warpgroup whose the next tile is that one's rows hold

  turns.begin();
  bool left_before = false;  // the tile before, to another thread block
  while (order.next(tile)) {
    if constexpr (variant::ragged && !variant::mask && variant::B_r > 64) {
      int own_row = static_cast<int>(warpgroup) * rows;  // in the tile
      // A tile that the rows of one hold is a warpgroup's alone, in turn, so that they compute several side by side.
      if (ends_before(tile, tile.first_row + rows)) {
        own_row = warpgroup == sole_owner ? 0 : rows;
        sole_owner = sole_owner + 1 == consumers ? 0 : sole_owner + 1;
      }
      if (ends_before(tile, tile.first_row + own_row)) {
        skip_tile();
        continue;
      }
      // From here on as if the tile began so many rows before, that its own are where they always are.
      const int rows_before = static_cast<int>(warpgroup) * rows - own_row;
      tile.first_row -= rows_before;
      shared.q.tiles = Q_tiles - static_cast<u32>(rows_before * QTile::row_bytes);
    }
    Softmax softmax;
    softmax.restart();
    if constexpr (Expressions::tilts) {
      tilt_rows(softmax, expressions_of(params), score_rows<Rows>(params, tile), tile.first_row + warp_row,
                params.scale_log2);
    }
    float O[O_columns / 8][4];
    float S[variant::B_c / 8][4];
    u32 P[variant::B_c / 16][4];
    bool accumulate = tile.begun;
    const Dropout dropped{dropout_of(params), tile.batch * params.heads_q + tile.head};
    const int drop_row = tile.first_row + warp_row;
    // Leaves of a block's weights what dropout keeps.
    const auto drop_weights = [&](float(&weights)[variant::B_c / 8][4], u32(&P)[variant::B_c / 16][4], int j) {
      if (had_no_weight(softmax)) return;
      keep_weights<variant::dtype>(weights, P,
                                   KeptWeights<false, 1, variant::B_c / 8>(dropped, drop_row, j * variant::B_c));
    };
    int j = begin_tile();
    shared.k.wait();
    multiply_QK(S, Q, shared.q, shared.k, static_cast<int>(warpgroup) * rows);
    if constexpr (variant::mask) j = told_block();
    if constexpr (variant::stream_k) {
      // Before it waits, or who waits for it does for both.
      if (left_before) unfinished.signal(unfinished.own, params.launch);
      if (tile.begun) unfinished.load_partials(O, softmax);
    }
    if constexpr (variant::causal && variant::B_r > 64) {
      if (skips_last) shared.v.skip();
    }
    wgmma_wait<0>();
    take_S(S, j);
    finish_S(S, j);
    if constexpr (Expressions::tilts) {
      tilt_block(softmax, expressions_of(params), score_rows<Rows>(params, tile),
                 {tile.first_row + warp_row, j * variant::B_c}, params.scale_log2);
    }
    update<variant::dtype>(softmax, S, P, params.scale_log2, [](float) {});
    if constexpr (variant::dropout) drop_weights(S, P, j);
    if constexpr (variant::stream_k) {
      if (tile.begun) softmax.rescale(O);
    }

#pragma unroll 1
    while (j != tile.first_block) {
      --j;
      shared.k.wait();
      turns.take();
      settle(O);
      multiply_QK(S, Q, shared.q, shared.k, static_cast<int>(warpgroup) * rows);
      shared.v.wait();
      if constexpr (Expressions::tilts) {
        multiply_weights(O, P, shared.v.tile(), accumulate, adds_nothing(softmax));
      } else {
        multiply_PV(O, P, shared.v.tile(), accumulate);  // of the block before
      }
      turns.pass();
      if constexpr (variant::mask) j = told_block();
      wgmma_wait<1>();
      take_S(S, j);
      // Tiles that blocks share have no mask but their keys' end, which came with their first block.
      if constexpr (!variant::stream_k || variant::softcap) finish_S(S, j);
      if constexpr (Expressions::tilts) {
        tilt_block(softmax, expressions_of(params), score_rows<Rows>(params, tile),
                   {tile.first_row + warp_row, j * variant::B_c}, params.scale_log2);
      }
      update<variant::dtype>(softmax, S, P, params.scale_log2, [&](float sum) {
        hold_wait_behind(sum, shared.k);
        wgmma_wait<0>();
        settle(O);
        shared.v.release();
        shared.v.next();
      });
      if constexpr (variant::dropout) drop_weights(S, P, j);
      accumulate = true;
      softmax.rescale(O);
    }

    if constexpr (Expressions::first_keys != 0) {
      // Few keys behind all blocks, as a whole block of them would take its time.
      float F[first_columns / 8][4];
      u32 W[first_columns / 16][4];
      shared.k.wait();
      turns.take();
      settle(O);
      multiply_QK(F, Q, shared.q, shared.k, static_cast<int>(warpgroup) * rows);
      shared.v.wait();
      multiply_PV(O, P, shared.v.tile(), accumulate);  // of the last block
      turns.pass();
      wgmma_wait<1>();
      settle(F);
      shared.k.release();
      shared.k.next();
      shared.k.ask();
      if constexpr (variant::Q_columns_in_registers != variant::head_dim) shared.q.release();
      express_first_keys(F, expressions_of(params), score_rows<Rows>(params, tile), Rows::mask(params, tile),
                         tile.first_row + warp_row, params.cap_scale);
      update<variant::dtype>(softmax, F, W, params.scale_log2, [&](float sum) {
        hold_wait_behind(sum, shared.k);
        wgmma_wait<0>();
        settle(O);
        shared.v.release();
        shared.v.next();
      });
      softmax.rescale(O);
      shared.v.wait();
      turns.take();
      settle(O);
      multiply_PV(O, W, shared.v.tile(), true);
    } else {
      u32 R[variant::P_residual_keys / 16][4];  // of the first keys, whose weights S still has
      if constexpr (variant::P_residual_keys != 0) {
        take_residual<variant::dtype>(R, S, tile.left || had_no_weight(softmax));
      }
      shared.v.wait();
      turns.take();
      settle(O);
      multiply_PV(O, P, shared.v.tile(), accumulate);
      if constexpr (variant::P_residual_keys != 0) multiply_PV(O, R, shared.v.tile(), true);
    }
    turns.pass();
    wgmma_wait<0>();
    settle(O);
    shared.q.next();
    shared.v.release();
    shared.v.next();
    if constexpr (variant::stream_k) {
      left_before = tile.left;
      if (tile.left) unfinished.store_partials(O, softmax);
      if (!tile.left) store(params, output, tile, warpgroup, O, softmax);
    } else {
      store(params, output, tile, warpgroup, O, softmax);
    }
    if constexpr (variant::stream_k || finds_tiles) warp_barrier();  // or the loop goes on as if lanes had parted
  }
  turns.end();
  output.finish();
}

extern "C" __global__ void __launch_bounds__(threads, 1) prefill_sm90(const __grid_constant__ Params params) {
  const Shared shared((shared_memory() + 1023) / 1024 * 1024);
  if (thread_index() == 0) {
    shared.q.create();
    shared.k.create();
    shared.v.create();
    if constexpr (finds_tiles) shared.found().create();
    mbarrier_fence();
    prefetch_map(params.q);
    if constexpr (!variant::paged || variant::page_multiple != 1) {
      prefetch_map(params.k);
      prefetch_map(params.v);
    }
    prefetch_map(params.o);
  }
  if constexpr (Expressions::told) wait_for_kernel_before();  // mask_blocks may still be writing
  block_barrier();
  if (warp_index() < 4) {
    if constexpr (variant::paged) {
      give_registers<page_producer_registers>();
    } else {
      give_registers<producer_registers>();
    }
    if constexpr (finds_tiles) {
      if (warp_index() == 1) find_tiles(params, shared.found());
    }
    if constexpr (variant::paged) {
      const u32 loader = warp_index() == 0 ? 0 : warp_index() - 1;
      if (warp_index() != 1 && loader < loaders) produce_pages(params, shared, loader);
    } else {
      if (warp_index() == 0 && elect_lane()) produce(params, shared);
    }
  } else {
    if constexpr (variant::paged) {
      take_registers<page_consumer_registers>();
    } else {
      take_registers<consumer_registers>();
    }
    consume(params, shared);
  }
}
