// FlashAttention-1 forward (arXiv 2205.14135) on mma.sync, compute capability 8.0 and newer: to be read beside
// prefill_sm80, which is FlashAttention-2's, and measured against it. No kernel that is chosen for a problem comes from
// here; a spec has to name it (prefill_fa1_sm80.md).
//
// The loops are the other way round. A block owns a head: it walks the keys B_c at a time, and for each block of keys
// all queries, B_r at a time. So K and V are read once, but what a row has come to, O and its softmax state m and l,
// does not stay in registers: it goes to memory and comes back for every block of keys. O is kept there in fp32 and is
// divided by l at the end, as in prefill_sm80, so that the order of the loops is all that differs.
//
// Which unit limits it: memory. A step of B_r queries and B_c keys is 4 * B_r * B_c * D operations and moves 8 * B_r *
// D bytes of O: B_c / 2 operations a byte, 32 at B_c = 64, where an H100's tensor cores want some 300 of L2's and its
// DRAM's. And a head is one block's: as many multiprocessors work as there are (batch, head) pairs. FlashAttention-2's
// order ended both.
#include "carried_rows.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 64;
constexpr int B_c = 64;
constexpr int warps = 4;
constexpr bool causal = false;
constexpr bool softcap = false;
}  // namespace variant

#include "blocks/copy.cuh"
#include "blocks/lse_places.cuh"
#include "blocks/mask.cuh"
#include "blocks/product.cuh"
#include "blocks/schedule.cuh"
#include "blocks/scores.cuh"
#include "blocks/softmax.cuh"
#include "blocks/store.cuh"
#include "blocks/tile.cuh"
#include "ptx/floats.cuh"
#include "ptx/memory.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int row_tiles = variant::B_r / (16 * variant::warps);        // 16-row tiles of a warp
constexpr int key_pieces = variant::B_c / 16;                          // 16-key pieces of a block
constexpr int head_pieces = variant::head_dim / 16;                    // 16-wide pieces of a row
constexpr int carried_floats = (head_pieces * 2 + 1) * warp_size * 4;  // of 16 rows

using QTile = Tile<variant::B_r, variant::head_dim, true>;
using KVTile = Tile<variant::B_c, variant::head_dim, true>;
using KeyMask = Select<variant::causal, CausalMask, FullMask>;

static_assert(variant::B_r == 16 * row_tiles * variant::warps && variant::B_c % 16 == 0);

// What a warp's rows have come to after some of the keys.
struct Rows {
  OnlineSoftmax<row_tiles> softmax;
  float O[row_tiles][head_pieces * 2][4] = {};

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      const float* const first = from + i * carried_floats + lane_index() * 4;
#pragma unroll
      for (int n = 0; n < head_pieces * 2; ++n) {
        const Float4 four = load_global_floats(first + n * warp_size * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) O[i][n][e] = four.value[e];
      }
      const Float4 state = load_global_floats(first + head_pieces * 2 * warp_size * 4);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        softmax.m[i][h] = state.value[h];
        softmax.l[i][h] = state.value[2 + h];
      }
    }
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      float* const first = to + i * carried_floats + lane_index() * 4;
#pragma unroll
      for (int n = 0; n < head_pieces * 2; ++n) {
        store_global(first + n * warp_size * 4, {O[i][n][0], O[i][n][1], O[i][n][2], O[i][n][3]});
      }
      store_global(first + head_pieces * 2 * warp_size * 4,
                   {softmax.m[i][0], softmax.m[i][1], softmax.l[i][0], softmax.l[i][1]});
    }
  }
};

extern "C" __global__ void __launch_bounds__(threads)
    prefill_fa1_sm80(const __grid_constant__ AttuneCarriedPrefillParams params) {
  const TileIndex own = tile_index<false>(static_cast<u32>(params.heads_q), static_cast<u32>(params.batch));
  const int kv_head = own.head / params.gqa_ratio;
  const Matrix Q_rows = head_of(params.q, own.batch, own.head, params.seqlen_q, params.head_dim);
  const Matrix K_rows = head_of(params.k, own.batch, kv_head, params.seqlen_k, params.head_dim);
  const Matrix V_rows = head_of(params.v, own.batch, kv_head, params.seqlen_k, params.head_dim);
  const KeyMask mask = KeyMask::of(params, params.seqlen_q, params.seqlen_k);
  const int blocks = blocks_reaching(params.seqlen_k, variant::B_c);
  const int tiles = (params.seqlen_q + variant::B_r - 1) / variant::B_r;

  const QTile Q{shared_memory()};
  const KVTile K{Q.base + QTile::bytes};
  const KVTile V{K.base + KVTile::bytes};
  TileCopy<KVTile, threads, false> K_copy(K_rows, 0);
  TileCopy<KVTile, threads, false> V_copy(V_rows, 0);

  const u32 warp_row = warp_index() * (16 * row_tiles);
  const i64 pair = static_cast<i64>(own.batch) * params.heads_q + own.head;
  // Of this warp's rows of the head's first tile; those of the next are as many of all warps further.
  float* const carried = params.carried + (pair * tiles * variant::B_r + warp_row) / 16 * carried_floats;
  constexpr int tile_floats = variant::B_r / 16 * carried_floats;

  for (int j = 0; j < blocks; ++j) {
    block_barrier();  // all are done with the block before
    K_copy.copy<false>(K);
    V_copy.copy<false>(V);
    K_copy.move(1);
    V_copy.move(1);
    const int first_key = j * variant::B_c;
    for (int i = 0; i < tiles; ++i) {
      const int first_query = i * variant::B_r;
      if (mask.limit(first_query + variant::B_r - 1) <= first_key) continue;  // none of them sees these keys
      block_barrier();                                                        // all are done with the tile before
      TileCopy<QTile, threads, false>(Q_rows, first_query).copy<false>(Q);
      Rows rows;
      if (j > 0) rows.load(carried + static_cast<i64>(i) * tile_floats);
      block_barrier();  // Q, K and V are there

      float S[row_tiles][key_pieces * 2][4] = {};
      {
        TileOperand<Side::A, Inner::columns, QTile, row_tiles> a(Q, warp_row / 16);
        TileOperand<Side::B, Inner::columns, KVTile, key_pieces> b(K, 0);
        multiply<variant::dtype, head_pieces>(S, a, b);
      }
      finish_scores(S, mask, {first_query + static_cast<int>(warp_row), first_key}, params.cap_scale);
      rows.softmax.update<Rescale::always>(S, rows.O, params.scale_log2, j == 0);
      {
        ScoreOperand<false, variant::dtype, row_tiles, key_pieces * 2, KVTile, key_pieces> P(S, V, 0, 0);
        TileOperand<Side::B, Inner::rows, KVTile, head_pieces> b(V, 0);
        multiply<variant::dtype, key_pieces>(rows.O, P, b);
      }
      rows.store(carried + static_cast<i64>(i) * tile_floats);
    }
  }

  const Matrix O_rows = head_of(params.o, own.batch, own.head, params.seqlen_q, params.head_dim);
  const LsePlaces lse_places{params.lse + pair * params.seqlen_q, params.seqlen_q};
  for (int i = 0; i < tiles; ++i) {
    const int first_row = i * variant::B_r + static_cast<int>(warp_row);
    Rows rows;
    if (mask.limit((i + 1) * variant::B_r - 1) > 0) rows.load(carried + static_cast<i64>(i) * tile_floats);
    float inverse_l[row_tiles][2];
    float lse[row_tiles][2];
    rows.softmax.finish(inverse_l, lse, params.scale_log2);
    warp_barrier();  // all lanes are done with this warp's rows of the tile before
    store_rows<variant::dtype>(rows.O, inverse_l, Q, warp_row, O_rows, first_row);
    if (params.lse == nullptr) continue;
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) store_lse(lse[t], first_row + t * 16, lse_places);
  }
}
