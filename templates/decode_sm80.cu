// Flash-Decoding, first stage: few queries attend to a long cache, on mma.sync and cp.async, compute capability 8.0 and
// newer.
//
// One query a sequence leaves nothing to do in parallel but the keys: a block takes a part of them (blocks/parts.cuh),
// for all queries of all heads that share them (B_r rows), and combine.cu merges what the parts found. Where the parts
// of a sequence are a cluster of blocks, these merge it through each other's shared memory (compute capability 9.0).
//
// Within a block each warp has keys of its own: of every B_c keys a strip of B_c / warps, with its own pipeline, its
// own maximum and its own O, so that no barrier stands between a warp and its next bytes. The warps meet at the
// beginning of a sequence, for Q, and at its end.
//
// Where many heads share keys, warps take rows instead (`split_rows`): each has all keys of a step for rows of its own,
// so that a tile of all these heads reads keys once. Then barriers of the block stand around each use of K and of V.
//
// Which unit limits it: each byte of K and V is used once. A multiprocessor of an H200 gets 20 bytes a clock, 64 keys
// of head_dim D take 12.8 * D clocks to arrive. Their products are D mma.sync of m16n8k16 on each of four tensor
// cores a row tile, 2 * D clocks; their fragments 2 * D clocks of shared memory; the exponentials 64 clocks. So memory
// limits as long as enough of it is asked for at a time: latency times rate is some 40 KB a multiprocessor, and two or
// three blocks with `stages` strips a warp keep 64 to 192 KB under way.
#include "decode_params.h"
#include "expressed_decode_params.h"
#include "rotary.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int B_r = 16;
constexpr int B_c = 64;
constexpr int warps = 4;
constexpr int stages = 2;
constexpr bool paged = false;
constexpr int page_multiple = 1;
constexpr Rotary rotary = Rotary::none;
constexpr bool softcap = false;
constexpr bool score = false;
constexpr bool mask = false;
constexpr bool sink = false;
constexpr bool ragged = false;
constexpr bool cut_rows = false;
constexpr int gqa_ratio = 0;
constexpr bool one_query = false;
constexpr bool cluster = false;
constexpr bool interleave = false;
constexpr bool split_rows = false;
}  // namespace variant

#include "blocks/cache_copy.cuh"
#include "blocks/cluster_merge.cuh"
#include "blocks/merge_warps.cuh"
#include "blocks/multiply.cuh"
#include "blocks/parts.cuh"
#include "blocks/query_rows.cuh"
#include "blocks/query_tile.cuh"
#include "blocks/scores.cuh"
#include "blocks/softmax.cuh"
#include "blocks/split_rows.cuh"
#include "blocks/tile.cuh"
#include "blocks/visible.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/floats.cuh"
#include "ptx/grid.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"

#include "blocks/decode_rows.cuh"
#include "blocks/express_scores.cuh"
#include "blocks/expressions.cuh"
#include "blocks/live_cursor.cuh"
#include "blocks/score_place.cuh"
#include "blocks/sink.cuh"

using Params = Select<variant::sink, AttuneExpressedDecodeParams,
                      Select<variant::score || variant::mask, AttuneExpressedDecodeParams, AttuneDecodeParams>>;

constexpr int threads = variant::warps * warp_size;
constexpr int strip_keys = variant::split_rows ? variant::B_c : variant::B_c / variant::warps;
constexpr int own_rows_of_warp = variant::split_rows ? variant::B_r / variant::warps : variant::B_r;
constexpr int row_tiles = own_rows_of_warp / 16;
// Keys of a step that a warp copies: its strip, or of rows' warps a part of the one that all share, some warps none.
constexpr int copied_keys = !variant::split_rows ? strip_keys : variant::B_c > 16 * variant::warps ? 32 : 16;
constexpr bool all_warps_copy = copied_keys * variant::warps == variant::B_c;
constexpr int key_pairs = strip_keys / 16;          // 16-key pieces of a strip
constexpr int head_pairs = variant::head_dim / 16;  // 16-wide pieces of a row

using Strip = Tile<strip_keys, variant::head_dim, true>;
constexpr Pages page_sizes = !variant::paged ? Pages::none : variant::page_multiple == 16 ? Pages::of_16 : Pages::any;
using CopiedStrip = Tile<copied_keys, variant::head_dim, true>;
using Copy = CacheCopy<CopiedStrip, page_sizes, variant::cut_rows>;
// Parts of one sequence alone have the pages of as many strips to come as a warp has lanes looked up at once: a table
// that is not in L2 has its latency once, not for each strip that is asked for before the first has come.
constexpr bool looks_ahead = variant::cluster && page_sizes == Pages::of_16;
// Beside O and S of 16 rows and 128 columns, or as much in another shape, registers hold Q and a whole strip, whose
// place is filled again before the products.
constexpr bool small_tile = !variant::split_rows && variant::B_r * variant::head_dim <= 16 * 128;
using QTile = Tile<variant::B_r, variant::head_dim, true>;
using QStream = FragmentStream<QTile, head_pairs, row_tiles, small_tile ? head_pairs : 1, false, true>;
using KStream = FragmentStream<Strip, head_pairs, key_pairs, small_tile ? head_pairs : 1, !variant::split_rows, true>;
using VStream = FragmentStream<Strip, key_pairs, head_pairs, small_tile ? key_pairs : 1, !variant::split_rows, false>;
using AnyBlock = Cursor<variant::B_c, variant::interleave, variant::cluster>;
using LiveBlock = LiveCursor<variant::B_r, variant::B_c, variant::interleave>;
using Position = Select<variant::mask && !variant::cluster, LiveBlock, AnyBlock>;
using Merge = Select<variant::split_rows, SplitRows<row_tiles, variant::head_dim>,
                     WarpMerge<variant::warps, row_tiles, variant::head_dim>>;
using Parts = ClusterMerge<threads, variant::B_r, variant::head_dim>;  // where the strips were

constexpr int pipeline_bytes = (variant::split_rows ? 1 : variant::warps) * variant::stages * 2 * Strip::bytes;

// Where registers hold Q it comes to them by way of the merge's place, else it has its own.
constexpr int Q_bytes = small_tile ? 0 : QTile::bytes;
static_assert(!small_tile || QTile::bytes <= Merge::bytes);

// A block that has a multiprocessor's shared memory (compute capability 9.0) to itself may have its registers, too:
// ptxas would else spill some, to leave room for another. Where shared memory holds three blocks of one stage,
// registers are to hold them, too, as plans count on; and two or three blocks whose warps have rows of their own, where
// each quarter of a multiprocessor has a whole number of warps.
constexpr int shared_bytes = pipeline_bytes + Q_bytes + Merge::bytes;
constexpr int reserved_bytes = 1024;  // of each block
constexpr bool three_blocks_fit =
    variant::B_r == 16 && variant::warps == 4 && !small_tile && 3 * (shared_bytes + reserved_bytes) <= 228 * 1024;
constexpr int row_registers = row_tiles * (variant::head_dim + variant::B_c) / 2 + 40;  // of a thread
constexpr int most_quarter_warps = 512 / row_registers;                                 // by registers for each lane
constexpr bool three_row_blocks_fit = variant::split_rows && 3 * variant::warps <= 4 * most_quarter_warps &&
                                      3 * (shared_bytes + reserved_bytes) <= 228 * 1024;
constexpr bool two_row_blocks_fit = variant::split_rows && 2 * variant::warps <= 4 * most_quarter_warps;
constexpr int blocks_at_least = 2 * shared_bytes > 227 * 1024              ? 1
                                : three_blocks_fit || three_row_blocks_fit ? 3
                                : two_row_blocks_fit                       ? 2
                                                                           : 0;  // 0: whatever ptxas finds

static_assert(variant::split_rows || variant::B_c % (16 * variant::warps) == 0);
static_assert(variant::B_c % copied_keys == 0 && copied_keys * variant::warps >= variant::B_c);
static_assert(own_rows_of_warp % 16 == 0 && variant::head_dim % 16 == 0);

// Those who share a strip, a warp or the block, wait for one another.
__device__ __forceinline__ void strip_barrier() {
  if constexpr (variant::split_rows) {
    block_barrier();
  } else {
    warp_barrier();
  }
}

// A warp's strips of K and V: fetched `stages` steps ahead, in a part's order, each into the place of the one before as
// soon as that has been used. Every step closes a group for K and one for V, empty behind the part's end, so that
// waiting by count works.
struct StripPipeline {
  u32 base;
  Copy copy;
  Position position;  // of the next request
  Copy::Place place;
  Copy::Place ahead;  // of the strip that is as many steps off as this lane's number, when last looked up
  u32 steps = 0;

  __device__ __forceinline__ StripPipeline(const AttuneDecodeParams& params, u32 base, int kv_head,
                                           const Position& first)
      : base(variant::split_rows ? base : base + warp_index() * (variant::stages * 2 * Strip::bytes)),
        copy(params, kv_head),
        position(first) {
    find(params);
  }

  // Asks for as much as there is room for, once.
  __device__ __forceinline__ void begin(const AttuneDecodeParams& params) {
#pragma unroll 1
    for (u32 s = 0; s < variant::stages; ++s) {
      request_K(params, s);
      request_V(params, s);
    }
  }

  __device__ __forceinline__ Strip k(u32 stage) const { return {base + stage * (2 * Strip::bytes)}; }
  __device__ __forceinline__ Strip v(u32 stage) const { return {base + stage * (2 * Strip::bytes) + Strip::bytes}; }

  // Until the oldest group that has not been waited for is there.
  __device__ __forceinline__ void wait() const {
    cp_async_wait<2 * variant::stages - 1>();
    strip_barrier();
  }

  __device__ __forceinline__ void request_K(const AttuneDecodeParams& params, u32 stage) {
    strip_barrier();  // all are done with what the stage held
    if (position.exists()) {
      if constexpr (looks_ahead) place = Copy::found_by(steps % warp_size, ahead, first_key());
      const Visible& keys = position.visible;
      if (all_warps_copy || copies()) {
        copy.copy<true>(copy.k, params.k, params.pages, keys.begin, keys.seqlen_k, copied(k(stage)), place);
      }
    }
    cp_async_commit();
  }

  // And goes on to the next step.
  __device__ __forceinline__ void request_V(const AttuneDecodeParams& params, u32 stage) {
    strip_barrier();
    if (position.exists()) {
      const Visible& keys = position.visible;
      if (all_warps_copy || copies()) {
        copy.copy<false>(copy.v, params.v, params.pages, keys.begin, keys.seqlen_k, copied(v(stage)), place);
      }
      position.next(params);
      if constexpr (looks_ahead) ++steps;
      find(params);
    }
    cp_async_commit();
  }

 private:
  __device__ __forceinline__ int first_key() const {
    return position.block * variant::B_c + static_cast<int>(warp_index()) * copied_keys;
  }

  // Whether this warp has keys to copy where rows' warps are more than there are parts of a strip.
  __device__ __forceinline__ static bool copies() { return warp_index() < variant::B_c / copied_keys; }

  // What this warp copies of a strip.
  __device__ __forceinline__ static CopiedStrip copied(const Strip& strip) {
    return {variant::split_rows ? strip.base + warp_index() * CopiedStrip::bytes : strip.base};
  }

  __device__ __forceinline__ void find(const AttuneDecodeParams& params) {
    if (!position.exists()) return;
    if constexpr (!looks_ahead) {
      place = Copy::find(params, position.batch, position.visible.begin, position.visible.seqlen_k, first_key());
    } else if (steps % warp_size == 0) {
      const int more = static_cast<int>(lane_index()) * (variant::interleave ? params.splits : 1);
      const int seqlen =
          position.block + more < position.end ? position.visible.seqlen_k : 0;  // no key behind the part
      ahead = Copy::find(params, position.batch, position.visible.begin, seqlen, first_key() + more * variant::B_c);
    }
  }
};

// Four columns of O of a row, and where they are the first its LSE.
__device__ __forceinline__ void store(const AttuneDecodeParams& params, int batch, int kv_head, int row, int column,
                                      const Float4& o, float lse) {
  const QueryRow to(params, batch, kv_head, row);
  if constexpr (variant::ragged) {
    if (!to.exists) return;
  }
  store_global(to.in(params.o) + column * 2, pack<variant::dtype>(o.value[0], o.value[1]),
               pack<variant::dtype>(o.value[2], o.value[3]));
  if (column == 0) to.store_lse(params, lse);
}

// The head of Q that a row of a tile is of.
__device__ __forceinline__ int head_of(const AttuneDecodeParams& params, int kv_head, int row) {
  return kv_head * params.gqa_ratio + row % params.gqa_ratio;
}

// Four normalised columns of a row, and its LSE, with its sink.
__device__ __forceinline__ void join_sink(Float4& O, float& lse, float logit) {
  const float factor = join_sink(lse, logit);
#pragma unroll
  for (int e = 0; e < 4; ++e) O.value[e] *= factor;
}

// Rows of this block's tile: to O and LSE where the part has the whole sequence, else to the part's own place. Sinks
// join the first of a sequence's parts: of several what combine.cu makes of them has them then, too.
template <class Given>
__device__ __forceinline__ void store(const AttuneDecodeParams& params, const Given& given, const Merge& merge,
                                      int batch, bool whole, int slot, int kv_head, int first_row,
                                      OnlineSoftmax<row_tiles, variant::score>& softmax,
                                      const float (&O)[row_tiles][head_pairs * 2][4]) {
  const int rows = params.seqlen_q * params.gqa_ratio;
  const i64 first_partial = (static_cast<i64>(slot) * params.heads_kv + kv_head) * rows + first_row;
  merge.merge(softmax, O, params.scale_log2, rows - first_row, [&](int row, int column, Float4 o, float lse) {
    if (column >= params.head_dim) return;
    if constexpr (variant::sink) {
      const bool is_first = params.splits > 0 ? block_index().y == 0 : slot % 2 == 1;  // blocks/parts.cuh
      if (is_first) join_sink(o, lse, sink_of(given, head_of(params, kv_head, first_row + row)));
    }
    if (whole) {
      store(params, batch, kv_head, first_row + row, column, o, lse);
    } else {
      store_global(params.partial_o + (first_partial + row) * params.head_dim + column, o);
      if (column == 0) store_global(params.partial_lse + first_partial + row, lse);
    }
  });
}

// Sequences of which no query sees a key are in no part: their rows are zeros, their LSE -inf.
__device__ __forceinline__ void store_empty(const AttuneDecodeParams& params, int kv_head, int first_row) {
#pragma unroll 1
  for (int batch = static_cast<int>(block_index().z) * params.splits + static_cast<int>(block_index().y);
       batch < params.batch; batch += params.parts) {
    if (Stretch(visible_of(params, batch, first_row), variant::B_c).blocks > 0) continue;
    const QueryRow row(params, batch, kv_head, first_row + static_cast<int>(thread_index()));
    if (thread_index() >= variant::B_r || !row.exists) continue;
#pragma unroll 1
    for (int column = 0; column < params.head_dim; column += chunk)
      store_global(row.in(params.o) + column * 2, Chunk{});
    row.store_lse(params, minus_infinity());
  }
}

// The LSE of such rows where they have sinks, whose softmax has nothing else.
template <class Given>
__device__ __forceinline__ void store_empty_sinks(const AttuneDecodeParams& params, const Given& given, int kv_head,
                                                  int first_row) {
  constexpr float log2_e = 1.44269504f;
#pragma unroll 1
  for (int batch = static_cast<int>(block_index().z) * params.splits + static_cast<int>(block_index().y);
       batch < params.batch; batch += params.parts) {
    if (Stretch(visible_of(params, batch, first_row), variant::B_c).blocks > 0) continue;
    const QueryRow row(params, batch, kv_head, first_row + static_cast<int>(thread_index()));
    if (thread_index() >= variant::B_r || !row.exists) continue;
    row.store_lse(params, sink_of(given, row.head) * log2_e);
  }
}

// What follows from sizes that the kernel is for alone need not be worked out in front of the first keys (a division,
// bounds, a fifth of the code).
__device__ __forceinline__ decltype(auto) of_own_shape(const AttuneDecodeParams& given) {
  if constexpr (variant::gqa_ratio == 0) {
    return (given);
  } else {
    AttuneDecodeParams params = given;
    params.gqa_ratio = variant::gqa_ratio;
    if constexpr (variant::one_query) {
      params.seqlen_q = 1;
      params.head_dim = variant::head_dim;
    }
    return params;
  }
}

extern "C" __global__ void __launch_bounds__(threads, blocks_at_least)
    decode_sm80(const __grid_constant__ Params given) {
  const AttuneDecodeParams& params = of_own_shape(given);
  let_next_kernel_begin();
  const int q_tiles = (params.seqlen_q * params.gqa_ratio + variant::B_r - 1) / variant::B_r;
  const int tile = static_cast<int>(block_index().x);
  const int kv_head = q_tiles == 1 ? tile : tile / q_tiles;
  const int first_row = (tile - kv_head * q_tiles) * variant::B_r;
  const QTile q_tile{shared_memory() + pipeline_bytes};
  const u32 warp_row = variant::split_rows ? warp_index() * own_rows_of_warp : 0;  // this warp's first of the tile
  const u32 q_lane = lane_address_rows_first(q_tile, warp_row);
  const Merge merge{variant::split_rows ? warp_row : q_tile.base + Q_bytes};
  const Parts parts{shared_memory()};
  const int own_rows = params.seqlen_q * params.gqa_ratio - first_row < variant::B_r
                           ? params.seqlen_q * params.gqa_ratio - first_row
                           : variant::B_r;

  Position position(params, first_row);
  wait_for_kernel_before();  // store_kv may still be writing new keys, and a combine before it reading the workspace
  if constexpr (!variant::cluster) {
    if (params.cuts != nullptr && kv_head == 0 && thread_index() == 0) {
      AttuneCut* to = params.cuts + tile * params.parts + static_cast<int>(block_index().y);
      store_global(to, static_cast<u32>(position.cut.batch), static_cast<u32>(position.cut.parts));
    }
  }
  StripPipeline pipeline(params, shared_memory(), kv_head, position);
  u32 stage = 0;
  bool begun = false;
  while (position.exists()) {
    const int batch = position.batch;
    const bool has_whole = position.whole;
    const int own_slot = position.slot;
    if (begun) block_barrier();  // the sequence before has been merged
    fetch_queries<threads>(q_tile, params, batch, kv_head, first_row);
    if (begun) {
      cp_async_wait<0>();
    } else {
      pipeline.begin(params);  // not before Q, which would come behind all these keys
      begun = true;
      cp_async_wait<2 * variant::stages>();
    }
    block_barrier();
    QStream Q;
    if constexpr (small_tile) load_queries(q_tile, Q.fragment[0]);
    OnlineSoftmax<row_tiles, variant::score> softmax;
    float O[row_tiles][head_pairs * 2][4] = {};
    bool first = true;
    bool more = true;
    while (more) {
      float S[row_tiles][key_pairs * 2][4] = {};
      pipeline.wait();
      const Strip k_strip = pipeline.k(stage);
      const u32 k_lane = lane_address_columns_first(k_strip, 0);
      KStream K;
      K.begin(k_strip, k_lane);
#pragma unroll
      for (int d = 0; d < head_pairs; ++d) {
        if (!small_tile) Q.advance(q_tile, q_lane, d);
        K.advance(k_strip, k_lane, d);
        if (small_tile && d == 0) pipeline.request_K(params, stage);
        multiply_step<variant::dtype>(S, Q, K, d);
      }
      if (!small_tile) pipeline.request_K(params, stage);

      const int first_key =
          position.block * variant::B_c + (variant::split_rows ? 0 : static_cast<int>(warp_index()) * strip_keys);
      const ScoreCorner corner{first_row + static_cast<int>(warp_row), first_key};
      if constexpr (variant::score || variant::mask) {
        const PaddedScoreRows rows = decode_rows(params, position.visible, batch, kv_head);
        express_scores(S, expressions_of(given), rows, VisibleToRows{position.visible, params.gqa_ratio}, corner,
                       params.cap_scale, position.is_full);
      } else {
        finish_scores(S, VisibleToRows{position.visible, params.gqa_ratio}, corner, params.cap_scale);
      }
      softmax.update<Rescale::on_new_max>(S, O, params.scale_log2, first);
      const PackedP<variant::dtype, row_tiles, key_pairs> P(S);

      pipeline.wait();
      const Strip v_strip = pipeline.v(stage);
      const u32 v_lane = lane_address_rows_first(v_strip, 0);
      VStream V;
      V.begin(v_strip, v_lane);
#pragma unroll
      for (int k = 0; k < key_pairs; ++k) {
        V.advance(v_strip, v_lane, k);
        if (small_tile && k == 0) pipeline.request_V(params, stage);
        multiply_step<variant::dtype>(O, P, V, k);
      }
      if (!small_tile) pipeline.request_V(params, stage);
      stage = stage + 1 == variant::stages ? 0 : stage + 1;
      first = false;
      more = position.next(params);
    }
    if constexpr (variant::cluster) {
      static_assert(Parts::bytes <= pipeline_bytes);
      if constexpr (variant::split_rows) block_barrier();  // all are done with the strips
      merge.merge(softmax, O, params.scale_log2, own_rows,
                  [&](int row, int column, const Float4& o, float lse) { parts.leave(row, column, o, lse); });
    } else {
      store(params, given, merge, batch, has_whole, own_slot, kv_head, first_row, softmax, O);
    }
  }
  if constexpr (variant::cluster) {
    if (!begun) parts.leave_nothing(own_rows);
    parts.merge(own_rows, params.head_dim, [&](int row, int column, Float4 o, float lse) {
      if constexpr (variant::sink) {
        join_sink(o, lse, sink_of(given, head_of(params, kv_head, first_row + row)));
      }
      store(params, position.batch, kv_head, first_row + row, column, o, lse);
    });
  } else {
    store_empty(params, kv_head, first_row);
    if constexpr (variant::sink) store_empty_sinks(params, given, kv_head, first_row);
  }
}
