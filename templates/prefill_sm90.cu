// FlashAttention-3 forward (arXiv 2407.08608) on wgmma and bulk tensor copies, compute capability 9.0.
//
// A block stays on its multiprocessor and computes tile after tile of B_r rows, which are queries of one head or, with
// pack_gqa, of all that share keys and values. One thread of the first warpgroup fetches Q, K and V ahead; each of the
// others owns 64 rows of the tile and walks the keys B_c at a time, from the last visible block down so that masking is
// over first. The blocks of all its tiles are one stream: in each step it issues S = Q K^T for the next block, of the
// next tile where this one is done, then O += P V for the block before, and turns S into the next P while V is being
// multiplied. So tiles have no prologue of their own. With one tile of Q in shared memory each tile is such a stream by
// itself, and the next Q arrives while O is stored.
//
// Which unit limits it, for 64 queries and 64 keys on one multiprocessor: the two products take 4 * D clocks of the
// tensor cores (8 * 64 * 64 * D / 8192), the 4096 exponentials 256 clocks of the special-function units, at 16 a clock.
// At D = 64 both take 256, at D = 128 the products twice as long, at D = 256 four times. The softmax of one warpgroup
// is some 20 clocks for each of a lane's B_c / 2 scores, mostly waiting for its own exponentials, and has to hide
// behind the products of the others: hence turns, and three warpgroups where registers allow (D = 64). On real data the
// clock follows the power limit; then every instruction and every byte saved counts.
//
// Registers hold O, S and P, D / 2 + B_c / 2 + B_c / 4 of a lane's (D that of V, where it differs): with two warpgroups
// of 240 registers that is B_c of 128 at D = 128 and 80 at D = 256; with three of 160, 128 at D = 64. Shared memory
// holds Q_stages tiles of Q and `stages` of K and V; two of Q let the next tile begin while the last one ends.
// prefill_sm90.md has what was tried.
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
constexpr bool causal = false;
constexpr int gqa_ratio = 0;
constexpr bool pack_gqa = false;
constexpr bool ping_pong = true;
constexpr int rescale_bound = 0;
constexpr bool softmax_in_halves = true;
}  // namespace variant

#include "blocks/lazy_softmax.cuh"
#include "blocks/mask.cuh"
#include "blocks/panels.cuh"
#include "blocks/ring.cuh"
#include "blocks/store_lse.cuh"
#include "blocks/store_panels.cuh"
#include "blocks/tile_order.cuh"
#include "blocks/turns.cuh"
#if variant::softmax_in_halves
#include "blocks/update_in_halves.cuh"
#else
#include "blocks/update_whole.cuh"
#endif
#if variant::pack_gqa
#include "blocks/packed_rows.cuh"
#endif
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "ptx/wgmma.cuh"

constexpr int O_columns = variant::head_dim_v == 0 ? variant::head_dim : variant::head_dim_v;  // and V's
constexpr int rows = 64;  // of a warpgroup: wgmma's
constexpr int consumers = variant::B_r / rows;
constexpr int threads = (1 + consumers) * warpgroup_size;
constexpr u32 producer_registers = consumers == 3 ? 32 : 24;
constexpr u32 consumer_registers = consumers == 3 ? 160 : 240;

using QTile = Panels<variant::B_r, variant::head_dim>;
using KTile = Panels<variant::B_c, variant::head_dim>;
using VTile = Panels<variant::B_c, O_columns>;
using QRing = Ring<variant::Q_stages, consumers * 4>;
using KVRing = Ring<variant::stages, consumers * 4>;
// Where a row of O is long, a second vote costs less than the multiplications that it saves.
using Softmax = LazySoftmax<variant::rescale_bound, O_columns <= 128 ? 2 : 1>;
using Output = OutputStage<O_columns>;
// How many heads of a sequence have tiles of their own, and which head of keys and values those of one read.
#if variant::pack_gqa
using Row = PackedRow<variant::gqa_ratio>;
using KeyMask = PackedMask<variant::causal, variant::gqa_ratio>;
__device__ __forceinline__ int tile_heads(const AttuneTensorPrefillParams& params) {
  return params.heads_q / variant::gqa_ratio;
}
__device__ __forceinline__ int kv_head(const AttuneTensorPrefillParams& /*params*/, const QueryTile& tile) {
  return tile.head;
}
#else
using KeyMask = Mask<variant::causal>;
__device__ __forceinline__ int tile_heads(const AttuneTensorPrefillParams& params) { return params.heads_q; }
__device__ __forceinline__ int kv_head(const AttuneTensorPrefillParams& params, const QueryTile& tile) {
  return tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
}
#endif
using Order = TileOrder<KeyMask, tile_heads, variant::causal, variant::B_r, variant::B_c>;

// The rows of the first warpgroups may see no key of the tile's last blocks; of those, one is skipped.
constexpr bool may_skip = variant::causal && consumers > 1;

static_assert(variant::B_r % rows == 0 && consumers <= 3);

struct Shared {
  u32 base;

  __device__ __forceinline__ Shared() : base((shared_memory() + 1023) / 1024 * 1024) {}
  __device__ __forceinline__ QTile q(u32 stage) const { return {base + stage * QTile::bytes}; }
  __device__ __forceinline__ KTile k(u32 stage) const {
    return {base + variant::Q_stages * QTile::bytes + stage * KTile::bytes};
  }
  __device__ __forceinline__ VTile v(u32 stage) const { return {k(variant::stages).base + stage * VTile::bytes}; }
  // Of a warpgroup. Named barriers 1 to 3 are its turns'.
  __device__ __forceinline__ Output output(u32 warpgroup) const {
    return {v(variant::stages).base + warpgroup * Output::bytes, 4 + warpgroup};
  }
  __device__ __forceinline__ u32 barriers() const { return output(consumers).base; }
};

struct Rings {
  QRing q;
  KVRing k;
  KVRing v;

  __device__ __forceinline__ explicit Rings(u32 address)
      : q(address), k(address + QRing::bytes), v(address + QRing::bytes + KVRing::bytes) {}
};

// One thread: fetches what the consumers' stream of blocks reads, in its order.
__device__ __forceinline__ void produce(const AttuneTensorPrefillParams& params, const Shared& shared, Rings rings) {
  Order order(params);
  QueryTile tile{};
  QueryTile previous{};
  int previous_j = -1;
  const auto load_previous_V = [&] {
    if (previous_j < 0) return;
    rings.v.begin_fill(VTile::bytes);
    shared.v(rings.v.stage)
        .load(params.v, rings.v.full(), previous_j * variant::B_c, kv_head(params, previous), previous.batch);
    rings.v.next();
  };
  while (order.next(tile)) {
    for (int j = tile.blocks - 1; j >= 0; --j) {
      rings.k.begin_fill(KTile::bytes);
      shared.k(rings.k.stage).load(params.k, rings.k.full(), j * variant::B_c, kv_head(params, tile), tile.batch);
      rings.k.next();
      load_previous_V();
      if (j == tile.blocks - 1) {
        rings.q.begin_fill(QTile::bytes);
#if variant::pack_gqa
        shared.q(rings.q.stage)
            .load(params.q, rings.q.full(), tile.head * variant::gqa_ratio, Row::query(tile.first_row), tile.batch);
#else
        shared.q(rings.q.stage).load(params.q, rings.q.full(), tile.first_row, tile.head, tile.batch);
#endif
        rings.q.next();
      }
      previous = tile;
      previous_j = j;
    }
  }
  load_previous_V();
}

// S = Q K^T for this warpgroup's rows, under way.
__device__ __forceinline__ void multiply_QK(float (&S)[1][variant::B_c / 8][4], const QTile& q, u32 warpgroup,
                                            const KTile& k) {
  const u64 A = q.descriptor(static_cast<int>(warpgroup) * rows);
  const u64 B = k.descriptor(0);
#pragma unroll
  for (int d = 0; d < variant::head_dim / 16; ++d) {
    wgmma<variant::dtype>(S[0], A + QTile::columns_right(d), B + KTile::columns_right(d), d > 0);
  }
  wgmma_commit();
}

// O = P V or O += P V, under way.
__device__ __forceinline__ void multiply_PV(float (&O)[O_columns / 8][4], const u32 (&P)[variant::B_c / 16][4],
                                            const VTile& v, bool accumulate) {
  const u64 B = v.descriptor(0);
#pragma unroll
  for (int k = 0; k < variant::B_c / 16; ++k) {
    wgmma<variant::dtype>(O, P[k], B + VTile::rows_down(k), accumulate || k > 0);
  }
  wgmma_commit();
}

// O and LSE of this warpgroup's rows, O under way.
__device__ __forceinline__ void store(const AttuneTensorPrefillParams& params, const Output& output,
                                      const QueryTile& tile, u32 warpgroup, const float (&O)[O_columns / 8][4],
                                      const Softmax& softmax) {
  float inverse_l[2];
  float lse[1][2];
  softmax.finish(inverse_l, lse);
  const int first_row = tile.first_row + static_cast<int>(warpgroup) * rows;
#if variant::pack_gqa
  const int head = tile.head * variant::gqa_ratio;
  output.store<variant::dtype>(O, inverse_l, params.o, head, Row::query(first_row), tile.batch);
#else
  const int head = tile.head;
  output.store<variant::dtype>(O, inverse_l, params.o, first_row, head, tile.batch);
#endif
  if (params.lse != nullptr) {
    float* head_lse = params.lse + (static_cast<i64>(tile.batch) * params.heads_q + head) * params.seqlen_q;
    const int warp_first_row = first_row + static_cast<int>(warp_index() % 4) * 16;
#if variant::pack_gqa
    store_packed_lse<variant::gqa_ratio>(lse, head_lse, warp_first_row, params.seqlen_q);
#else
    store_lse(lse, head_lse, warp_first_row, params.seqlen_q);
#endif
  }
}

// A warpgroup: its rows of all tiles.
__device__ __forceinline__ void consume(const AttuneTensorPrefillParams& params, const Shared& shared, Rings rings) {
  const u32 warpgroup = warp_index() / 4 - 1;
  const Output output = shared.output(warpgroup);
  const int warp_row = static_cast<int>(warpgroup) * rows + static_cast<int>(warp_index() % 4) * 16;
  const KeyMask mask{params.seqlen_k, params.seqlen_k - params.seqlen_q};
  const Turns<consumers, variant::ping_pong> turns{warpgroup};

  Order order(params);
  QueryTile tile{};
  bool skips_last = false;
  // Goes to the next tile. Its last block may lie beyond this warpgroup's rows: that one is only released, with an
  // empty turn, so that the warpgroups stay in step.
  const auto begin_tile = [&] {
    rings.q.wait();
    skips_last = may_skip && order.blocks_of(tile.first_row + static_cast<int>(warpgroup + 1) * rows - 1) < tile.blocks;
    if (!skips_last) return tile.blocks - 1;
    rings.k.skip();
    turns.take();
    turns.pass();
    return tile.blocks - 2;
  };
  // S of block j is there: its keys have been read, and behind the tile's last block its queries.
  const auto take_S = [&](float(&S)[1][variant::B_c / 8][4], int j) {
    settle(S[0]);
    rings.k.release();
    rings.k.next();
    rings.q.release(j == 0);
    mask.apply(S, tile.first_row + warp_row, j * variant::B_c);
  };
  const auto skip_V = [&] {
    if (skips_last) rings.v.skip();
  };

  turns.begin();
#if variant::Q_stages == 1
  while (order.next(tile)) {
#else
  if (order.next(tile)) {
#endif
    Softmax softmax;
    softmax.restart();
    float O[O_columns / 8][4];
    u32 P[variant::B_c / 16][4];
    bool accumulate = false;
    int j = begin_tile();
    {
      float S[1][variant::B_c / 8][4];
      rings.k.wait();
      wgmma_fence();
      multiply_QK(S, shared.q(rings.q.stage), warpgroup, shared.k(rings.k.stage));
      skip_V();
      wgmma_wait<0>();
      take_S(S, j);
      update<variant::dtype>(softmax, S[0], P, params.scale_log2, [](float) {});
    }

#pragma unroll 1
    while (true) {
#if variant::Q_stages == 1
      if (j == 0) break;
      --j;
#else
      const bool ends_tile = j == 0;
      const QueryTile ended = tile;
      if (ends_tile) {
        rings.q.next();
        if (!order.next(tile)) break;
        j = begin_tile();
      } else {
        --j;
      }
#endif
      float S[1][variant::B_c / 8][4];
      rings.k.wait();
      turns.take();
      settle(O);
      wgmma_fence();
      multiply_QK(S, shared.q(rings.q.stage), warpgroup, shared.k(rings.k.stage));
      rings.v.wait();
      wgmma_fence();
      multiply_PV(O, P, shared.v(rings.v.stage), accumulate);
      turns.pass();

#if variant::Q_stages != 1
      const Softmax ended_softmax = softmax;
      if (ends_tile) softmax.restart();
#endif
      wgmma_wait<1>();
      take_S(S, j);
      update<variant::dtype>(softmax, S[0], P, params.scale_log2, [&](float sum) {
        // Never. But ptxas hoists the next wait as far as a branch, and puts off what no branch needs behind it.
        if (sum < 0.0f) rings.k.wait();
        wgmma_wait<0>();
        settle(O);
        rings.v.release();
        rings.v.next();
      });
#if variant::Q_stages == 1
      accumulate = true;
      softmax.rescale(O);
#else
      accumulate = !ends_tile;
      if (ends_tile) {
        skip_V();
        store(params, output, ended, warpgroup, O, ended_softmax);
        warp_barrier();  // or the loop goes on as if lanes had parted
      } else {
        softmax.rescale(O);
      }
#endif
    }

    rings.v.wait();
    turns.take();
    settle(O);
    wgmma_fence();
    multiply_PV(O, P, shared.v(rings.v.stage), accumulate);
    turns.pass();
    wgmma_wait<0>();
    settle(O);
#if variant::Q_stages == 1
    rings.q.next();
    rings.v.release();
    rings.v.next();
#endif
    store(params, output, tile, warpgroup, O, softmax);
  }
  turns.end();
  output.finish();
}

extern "C" __global__ void __launch_bounds__(threads, 1)
    prefill_sm90(const __grid_constant__ AttuneTensorPrefillParams params) {
  const Shared shared;
  const Rings rings(shared.barriers());
  if (thread_index() == 0) {
    rings.q.create();
    rings.k.create();
    rings.v.create();
    mbarrier_init_fence();
    prefetch_map(params.q);
    prefetch_map(params.k);
    prefetch_map(params.v);
    prefetch_map(params.o);
  }
  block_barrier();
  if (warp_index() < 4) {
    give_registers<producer_registers>();
    if (thread_index() == 0) produce(params, shared, rings);
  } else {
    take_registers<consumer_registers>();
    consume(params, shared, rings);
  }
}
