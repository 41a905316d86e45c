// FlashAttention-3 forward (arXiv 2407.08608) on wgmma and bulk tensor copies, compute capability 9.0.
//
// A block stays on its multiprocessor and computes tile after tile of B_r rows. One thread of the first warpgroup
// fetches Q, K and V ahead; each of the others owns 64 rows of the tile and walks the keys B_c at a time, from the last
#if variant::Q_stages == 1
// visible block down so that masking is over first. In each step it issues S = Q K^T for the next block, then O += P V
// for the block before, and turns S into the next P while V is being multiplied. The next Q arrives while O is stored.
#else
// visible block down so that masking is over first. The blocks of all its tiles are one stream: in each step it issues
// S = Q K^T for the next block, of the next tile where this one is done, then O += P V for the block before, and turns
// S into the next P while V is being multiplied. So tiles have no prologue of their own.
#endif
// For 64 queries and 64 keys the products take 4 * D clocks of the tensor cores, the exponentials 256 of the special-
// function units: both limit it at D = 64, the products beyond, and a softmax has to hide behind other warpgroups'
// products: prefill_sm90.md.
#include "tensor_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int head_dim_v = 0;
constexpr int B_r = 128;
constexpr int B_c = 128;
constexpr int stages = 2;
constexpr int Q_stages = 2;
constexpr int Q_columns_in_registers = 0;
constexpr int P_residual_keys = 0;
constexpr bool causal = false;
constexpr bool window = false;
constexpr bool softcap = false;
constexpr bool ragged = false;
constexpr int gqa_ratio = 0;
constexpr bool pack_gqa = false;
constexpr bool ping_pong = true;
constexpr int rescale_bound = 0;
constexpr bool softmax_in_halves = true;
constexpr bool tile_list = false;
constexpr bool stream_k = false;
}  // namespace variant

#include "blocks/lazy_softmax.cuh"
#include "blocks/mask.cuh"
#include "blocks/panels.cuh"
#include "blocks/ring.cuh"
#include "blocks/store_lse.cuh"
#if variant::ragged
#include "blocks/ragged_tiles.cuh"
#else
#include "blocks/tile_order.cuh"
#endif
#if variant::softcap
#include "blocks/softcap.cuh"
#endif
#if variant::ping_pong
#include "blocks/turns.cuh"
#else
#include "blocks/no_turns.cuh"
#endif
#if variant::softmax_in_halves
#include "blocks/update_in_halves.cuh"
#else
#include "blocks/update_whole.cuh"
#endif
#if variant::pack_gqa
#include "blocks/packed_rows.cuh"
#endif
#if variant::P_residual_keys != 0
#include "blocks/residual.cuh"
#endif
#if variant::stream_k
#include "blocks/unfinished_tile.cuh"
#endif
#if variant::Q_columns_in_registers != 0
#include "ptx/ldmatrix.cuh"
#endif
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"

#if variant::stream_k
#include "shared_tiles.h"
using Params = AttuneSharedPrefillParams;
#else
#if variant::tile_list
#include "tile_list.h"
using Params = AttuneListedPrefillParams;
#else
using Params = AttuneTensorPrefillParams;
#endif
#endif
constexpr int O_columns = variant::head_dim_v == 0 ? variant::head_dim : variant::head_dim_v;  // and V's
constexpr int rows = 64;                                       // of a warpgroup: wgmma's
constexpr int Q_steps = variant::Q_columns_in_registers / 16;  // of products
constexpr int consumers = variant::B_r / rows;
constexpr int threads = (1 + consumers) * warpgroup_size;
constexpr u32 producer_registers = consumers == 3 ? 32 : 24;
constexpr u32 consumer_registers = consumers == 3 ? 160 : 240;
static_assert(variant::B_r % rows == 0 && consumers <= 3);

using QTile = Panels<variant::B_r, variant::head_dim>;
using KTile = Panels<variant::B_c, variant::head_dim>;
using VTile = Panels<variant::B_c, O_columns>;
using QRing = Ring<QTile, variant::Q_stages, consumers * 4>;
using KRing = Ring<KTile, variant::stages, consumers * 4>;
using VRing = Ring<VTile, variant::stages, consumers * 4>;
// Where a row of O is long, a second vote costs less than the multiplications that it saves.
using Softmax = LazySoftmax<variant::rescale_bound, O_columns <= 128 ? 2 : 1>;
using Output = OutputStage<O_columns>;
#if variant::stream_k
using Unfinished = UnfinishedTile<O_columns, consumers * 4, Softmax>;
#endif
// How many heads of a sequence have tiles of their own.
#if variant::pack_gqa
using KeyMask = PackedMask<variant::gqa_ratio>;
__device__ __forceinline__ int tile_heads(const Params& params) { return params.heads_q / variant::gqa_ratio; }
#else
#if variant::window
using KeyMask = Window;
#else
using KeyMask = Mask;
#endif
__device__ __forceinline__ int tile_heads(const Params& params) { return params.heads_q; }
#endif
#if variant::ragged
using Order = RaggedOrder<KeyMask, tile_heads, variant::causal, variant::B_r, variant::B_c>;
#else
using Order = TileOrder<KeyMask, tile_heads, variant::causal, variant::B_r, variant::B_c>;
#endif

#if variant::causal
// The rows of the first warpgroups may see no key of the tile's last blocks; of those, one is skipped.
constexpr bool may_skip = consumers > 1;

#endif
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
#if variant::ragged

  __device__ __forceinline__ TileSlots slots() const { return {v.barriers + VRing::barrier_bytes}; }
#endif
};

// One thread: fetches what the consumers' stream of blocks reads, in its order.
__device__ __forceinline__ void produce(const Params& params, Shared shared) {
  Order order(params);
  QueryTile tile{};
  int V_row = 0, V_head = -1, V_last = 0;  // of the block before, whose V comes behind the next K; none yet
  const auto load_V = [&] {
    if (V_head < 0) return;
    shared.v.begin_load();
    shared.v.load(params.v, V_row, V_head, V_last);
  };
  while (order.next(tile)) {
#if variant::pack_gqa
    const int head = tile.head;
#else
    const int head = tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
#endif
#if variant::ragged
    const Place queries(tile.queries);
    const Place keys(tile.keys);
#endif
    for (int j = tile.blocks - 1; j >= tile.first_block; --j) {
      shared.k.begin_load();
#if variant::ragged
      shared.k.load(params.k, keys.row + j * variant::B_c, head, keys.last);
#else
      shared.k.load(params.k, j * variant::B_c, head, tile.batch);
#endif
      load_V();
      if (j == tile.blocks - 1) {
#if variant::ragged
        shared.q.claim();
        shared.slots().write(shared.q.stage, tile);
        shared.q.announce();
        shared.q.load(params.q, queries.row + tile.first_row, tile.head, queries.last);
#else
        shared.q.begin_load();
#if variant::pack_gqa
        shared.q.load(params.q, tile.head * variant::gqa_ratio, KeyMask::query(tile.first_row), tile.batch);
#else
        shared.q.load(params.q, tile.first_row, tile.head, tile.batch);
#endif
#endif
      }
      V_head = head;
#if variant::ragged
      V_row = keys.row + j * variant::B_c;
      V_last = keys.last;
#else
      V_row = j * variant::B_c;
      V_last = tile.batch;
#endif
    }
  }
  load_V();
#if variant::ragged
  shared.q.claim();
  shared.slots().write(shared.q.stage, QueryTile{});
  shared.q.announce(0);
#endif
}

// O = P V or, to `add`, O += P V, under way, of the block's first 16 * steps keys.
template <int steps>
__device__ __forceinline__ void multiply_PV(float (&O)[O_columns / 8][4], const u32 (&P)[steps][4], VTile v, bool add) {
  wgmma_fence();
  wgmma<variant::dtype, true, VTile::rows_down>(O, P, v.descriptor(0), add);
  wgmma_commit();
}

// O and LSE of this warpgroup's rows, O under way.
__device__ __forceinline__ void store(const Params& params, const Output& output, const QueryTile& tile, u32 warpgroup,
                                      const float (&O)[O_columns / 8][4], const Softmax& softmax) {
  float inverse_l[2], lse[2];
  softmax.finish(inverse_l, lse);
  const int first_row = tile.first_row + static_cast<int>(warpgroup) * rows;
#if variant::ragged
  const int head = tile.head;
  const Place queries(tile.queries);
  output.store<variant::dtype>(O, inverse_l, params.o, queries.row + first_row, head, queries.last);
#else
#if variant::pack_gqa
  const int head = tile.head * variant::gqa_ratio;
  output.store<variant::dtype>(O, inverse_l, params.o, head, KeyMask::query(first_row), tile.batch);
#else
  output.store<variant::dtype>(O, inverse_l, params.o, first_row, tile.head, tile.batch);
#endif
#endif
  if (params.lse == nullptr) return;
#if variant::ragged
  float* head_lse = params.lse + static_cast<i64>(head) * params.total_q + tile.queries.first;
#else
#if variant::pack_gqa
  float* head_lse = params.lse + (static_cast<i64>(tile.batch) * params.heads_q + head) * params.seqlen_q;
#else
  float* head_lse = params.lse + (static_cast<i64>(tile.batch) * params.heads_q + tile.head) * params.seqlen_q;
#endif
#endif
  const int warp_first_row = first_row + static_cast<int>(warp_index() % 4) * 16;
#if variant::pack_gqa
  store_lse(lse, warp_first_row, params.seqlen_q * variant::gqa_ratio, [&](int row) {
    return head_lse + static_cast<i64>(KeyMask::head(row)) * params.seqlen_q + KeyMask::query(row);
  });
#else
#if variant::ragged
  store_lse(lse, warp_first_row, tile.queries.count, [&](int row) { return head_lse + row; });
#else
  store_lse(lse, warp_first_row, params.seqlen_q, [&](int row) { return head_lse + row; });
#endif
#endif
}

// A warpgroup: its rows of all tiles.
__device__ __forceinline__ void consume(const Params& params, Shared shared) {
  const u32 warpgroup = warp_index() / 4 - 1;
  const Output output{shared.output + warpgroup * Output::bytes, 4 + warpgroup};  // barriers 1 to 3 are the turns'
  const int warp_row = static_cast<int>(warpgroup) * rows + static_cast<int>(warp_index() % 4) * 16;
#if !variant::ragged
#if !variant::window
  const KeyMask mask{params.seqlen_k, params.seqlen_k - params.seqlen_q};
#endif
#endif
#if variant::stream_k
  const Unfinished unfinished{params, block_number() * consumers * 4 + warp_index() - 4};
#endif
  const Turns<consumers> turns{warpgroup};
#if variant::ragged
  ToldOrder<Order, QRing> order{params, shared.q, shared.slots()};
#else
  Order order(params);
#endif
  QueryTile tile{};
#if variant::Q_columns_in_registers != 0
  u32 Q[Q_steps][4];  // this warp's rows
#endif
#if variant::causal
  bool skips_last = false;
  // A last block beyond this warpgroup's rows is only released, with a turn, so that warpgroups stay in step.
#endif
  const auto begin_tile = [&] {  // the block that it begins with
#if !variant::ragged
    shared.q.wait();
#endif
#if variant::Q_columns_in_registers != 0
    const u32 own_row = static_cast<u32>(warp_row) + lane_index() % 16;
#pragma unroll
    for (u32 d = 0; d < Q_steps; ++d) ldmatrix(Q[d], shared.q.tile().chunk(own_row, 2 * d + lane_index() / 16));
    fence_for_copies();  // or the next Q might arrive before these loads have been carried out
    warp_barrier();      // lane 0 releases the stage for all
#endif
#if variant::Q_columns_in_registers == variant::head_dim
    shared.q.release();
#endif
#if variant::causal
    skips_last = may_skip && order.blocks_of(tile.first_row + static_cast<int>(warpgroup + 1) * rows - 1) < tile.blocks;
    if (!skips_last) return tile.blocks - 1;
    shared.k.skip();
    turns.take();
    turns.pass();
    return tile.blocks - 2;
#else
    return tile.blocks - 1;
#endif
  };
  // S = Q K^T for this warpgroup's rows, under way.
  const auto multiply_QK = [&](float(&S)[variant::B_c / 8][4]) {
    wgmma_fence();
#if variant::Q_columns_in_registers != 0
    wgmma<variant::dtype, false, KTile::columns_right>(S, Q, shared.k.tile().descriptor(0), false);
#endif
#if variant::Q_columns_in_registers != variant::head_dim
    const u64 A = shared.q.tile().descriptor(static_cast<int>(warpgroup) * rows);
    const u64 B = shared.k.tile().descriptor(0);
    constexpr int steps = variant::head_dim / 16 - Q_steps;
    wgmma<variant::dtype, false, KTile::columns_right, QTile::columns_right, Q_steps, steps>(S, A, B, Q_steps > 0);
#endif
    wgmma_commit();
  };
#if variant::Q_columns_in_registers == variant::head_dim
  // S of block j is there: its keys have been read.
#else
  // S of block j is there: its keys have been read, and behind the tile's last block its queries.
#endif
#if variant::stream_k
  const auto take_S = [&](float(&S)[variant::B_c / 8][4], int j, bool may_end = true) {
#else
  const auto take_S = [&](float(&S)[variant::B_c / 8][4], int j) {
#endif
    settle(S);
    shared.k.release();
    shared.k.next();
#if variant::Q_stages == 1
    shared.k.ask();
#endif
#if variant::Q_columns_in_registers != variant::head_dim
    shared.q.release(j == tile.first_block);
#endif
    const int first_row = tile.first_row + warp_row;
#if variant::softcap
    cap_scores(S, params.cap_scale);
#endif
#if variant::window
    const KeyMask mask = order.mask();
    const int first_key = j * variant::B_c;
    if (first_key < mask.first(first_row + 15) || mask.limit(first_row) < first_key + variant::B_c) {
      mask_window(mask, S, first_row, first_key);
    }
#else
#if variant::ragged
    const KeyMask mask = order.mask();
#endif
#if variant::stream_k
    if (may_end && mask.limit(first_row) < (j + 1) * variant::B_c) mask_scores(mask, S, first_row, j * variant::B_c);
#else
    if (mask.limit(first_row) < (j + 1) * variant::B_c) mask_scores(mask, S, first_row, j * variant::B_c);
#endif
#endif
  };

  turns.begin();
#if variant::stream_k
  bool left = false;  // the tile before, to the next thread block
#endif
#if variant::Q_stages == 1
  while (order.next(tile)) {
#else
  if (order.next(tile)) {
#endif
    Softmax softmax;
    softmax.restart();
    float O[O_columns / 8][4];
    float S[variant::B_c / 8][4];
    u32 P[variant::B_c / 16][4];
#if variant::stream_k
    bool accumulate = tile.begun;
#else
    bool accumulate = false;
#endif
    int j = begin_tile();
    shared.k.wait();
    multiply_QK(S);
#if variant::stream_k
    if (left) unfinished.signal(unfinished.own, params.launch);  // before it waits, or who waits for it does for both
    if (tile.begun) unfinished.load_partials(O, softmax);
#endif
#if variant::causal
    if (skips_last) shared.v.skip();
#endif
    wgmma_wait<0>();
    take_S(S, j);
    update<variant::dtype>(softmax, S, P, params.scale_log2, [](float) {});
#if variant::stream_k
    if (tile.begun) softmax.rescale(O);
#endif

#pragma unroll 1
#if variant::Q_stages == 1
    while (j != tile.first_block) {
      --j;
#else
    while (true) {
      const bool ends_tile = j == tile.first_block;
      const QueryTile ended = tile;
      if (ends_tile) {
        shared.q.next();
        if (!order.next(tile)) break;
        j = begin_tile();
      } else {
        --j;
      }
#endif
      shared.k.wait();
      turns.take();
      settle(O);
      multiply_QK(S);
      shared.v.wait();
      multiply_PV(O, P, shared.v.tile(), accumulate);
      turns.pass();
#if variant::Q_stages != 1

      const Softmax ended_softmax = softmax;
      if (ends_tile) softmax.restart();
#endif
      wgmma_wait<1>();
#if variant::stream_k
#if variant::softmax_in_halves
      take_S(S, j, false);  // a tile's last keys came first
#else
      take_S(S, j);  // the branch of its mask keeps ptxas from putting all exponentials in front of the wait for P V
#endif
#else
      take_S(S, j);
#endif
      update<variant::dtype>(softmax, S, P, params.scale_log2, [&](float sum) {
        // Never. But ptxas hoists the next wait as far as a branch, and puts off what no branch needs behind it.
        if (sum < 0.0f) shared.k.wait();
        wgmma_wait<0>();
        settle(O);
        shared.v.release();
        shared.v.next();
      });
#if variant::Q_stages == 1
      accumulate = true;
      softmax.rescale(O);
#else
      accumulate = !ends_tile;
      if (ends_tile) {
#if variant::causal
        if (skips_last) shared.v.skip();
#endif
        store(params, output, ended, warpgroup, O, ended_softmax);
        warp_barrier();  // or the loop goes on as if lanes had parted
      } else {
        softmax.rescale(O);
      }
#endif
    }

#if variant::stream_k
    left = tile.first_block != 0;
#endif
#if variant::P_residual_keys != 0
    u32 R[variant::P_residual_keys / 16][4];  // of the first keys, whose weights S still has
#if variant::stream_k
    take_residual<variant::dtype>(R, S, left);
#else
    take_residual<variant::dtype>(R, S, false);
#endif
#endif
    shared.v.wait();
    turns.take();
    settle(O);
    multiply_PV(O, P, shared.v.tile(), accumulate);
#if variant::P_residual_keys != 0
    multiply_PV(O, R, shared.v.tile(), true);
#endif
    turns.pass();
    wgmma_wait<0>();
    settle(O);
#if variant::Q_stages == 1
    shared.q.next();
    shared.v.release();
    shared.v.next();
#endif
#if variant::stream_k
    if (left) unfinished.store_partials(O, softmax);
    if (!left) store(params, output, tile, warpgroup, O, softmax);
    warp_barrier();  // or the loop goes on as if lanes had parted
#else
    store(params, output, tile, warpgroup, O, softmax);
#endif
#if variant::ragged
    warp_barrier();  // or the loop goes on as if lanes had parted
#endif
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
    mbarrier_fence();
    prefetch_map(params.q);
    prefetch_map(params.k);
    prefetch_map(params.v);
    prefetch_map(params.o);
  }
  block_barrier();
  if (warp_index() < 4) {
    give_registers<producer_registers>();
    if (warp_index() == 0 && elect_lane()) produce(params, shared);
  } else {
    take_registers<consumer_registers>();
    consume(params, shared);
  }
}
