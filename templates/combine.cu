// Flash-Decoding, second stage: the parts of a row become one, O = sum of 2^(LSE_i - LSE) O_i with
// 2^LSE = sum of 2^LSE_i.
//
// A block combines one row. Each warp takes every `warps`-th part, a lane some columns of it; then the warps' sums meet
// in shared memory. What is read is small and just written, and each scheduler has a warp or two: the latency of
// instructions limits, one behind the other. So addresses are worked out while the kernel before still runs, a lane
// asks for all it needs of several parts at once, and each warp weighs its own parts by their own maximum.
//
// Where rows are many and their parts few (`warp_rows`) each warp has a row of its own, with all its parts: nothing
// meets, and no warp waits without a part.
#include "decode_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int warps = 4;
constexpr bool ragged = false;
}  // namespace variant

#include "blocks/merge.cuh"
#include "blocks/parts.cuh"
#include "blocks/query_rows.cuh"
#include "ptx/floats.cuh"
#include "ptx/grid.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/lanes.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int lane_chunks = (variant::head_dim / 4 + warp_size - 1) / warp_size;  // of four columns
constexpr int at_once = 4;                                                        // parts that a warp asks for

// The slots of a sequence's parts: first, and then from `next` on every `step`-th.
struct Slots {
  int batch = 0;
  int count = 0;
  int first = 0;
  int next = 0;
  int step = 0;

  // Of the sequence that the row of this block or warp is of; none (count 0) where it has one part or another block
  // does it. All lanes of a warp together.
  __device__ __forceinline__ Slots(const AttuneDecodeParams& params, int row) {
    const int first_row = Queries::tile_of(params, row);
    const int index = static_cast<int>(block_index().x);
    if (params.splits > 0) {
      batch = index;
      const int blocks = Stretch(visible_of(params, batch, first_row), params.block_keys).blocks;
      count = blocks < params.splits ? blocks : params.splits;
      first = batch * params.splits;
      next = first + 1;
      step = 1;
      return;
    }
    int first_part = index;
    if (params.cuts != nullptr) {
      // Fewer borders between parts than sequences: decode says of each whose first it is.
      wait_for_kernel_before();
      const AttuneCut* cut = params.cuts + first_row / params.tile_rows * params.parts + index + 1;
      batch = load_global_int(&cut->batch);
      count = load_global_int(&cut->parts);
    } else {
      const Stream stream(params, first_row, params.block_keys);
      batch = index;
      const int begin = stream.before(params, batch);
      const int blocks = Stretch(visible_of(params, batch, first_row), params.block_keys).blocks;
      if (blocks == 0) return;
      first_part = stream.cut.part_of(begin);
      const int parts = stream.cut.parts_of(begin, blocks);
      if (parts > 1) count = parts;
    }
    first = 2 * first_part + 1;
    next = 2 * (first_part + 1);
    step = 2;
  }

  __device__ __forceinline__ int at(int i) const { return i == 0 ? first : next + (i - 1) * step; }
};

// Where the parts of a row are.
struct PartialRows {
  const float* lse;
  const float* o;  // the lane's first columns, or others where it has none
  u32 row_floats;
  u32 slot_rows;
  u32 own_row;  // of a slot

  __device__ __forceinline__ PartialRows(const AttuneDecodeParams& params, int kv_head, int row, int column)
      : lse(params.partial_lse),
        o(params.partial_o + (column < params.head_dim ? column : 0)),
        row_floats(static_cast<u32>(params.head_dim)) {
    const int rows = params.seqlen_q * params.gqa_ratio;
    slot_rows = static_cast<u32>(params.heads_kv * rows);
    own_row = static_cast<u32>(kv_head * rows + row);
  }

  __device__ __forceinline__ u32 at(int slot) const { return static_cast<u32>(slot) * slot_rows + own_row; }
  __device__ __forceinline__ const float* lse_of(int slot) const { return lse + at(slot); }
  __device__ __forceinline__ const float* o_of(int slot) const { return o + static_cast<u64>(at(slot)) * row_floats; }
};

// Four columns of O of a row, and with the first its LSE, from sums relative to the largest of its parts' LSE.
__device__ __forceinline__ void store(const QueryRow& row, const AttuneDecodeParams& params, int column, float l,
                                      float largest, Float4 O) {
  normalise(l, O);
  store_global(row.in(params.o) + column * 2, pack<variant::dtype>(O.value[0], O.value[1]),
               pack<variant::dtype>(O.value[2], O.value[3]));
  if (column == 0) row.store_lse(params, merged_lse(l, merged_shift(largest, largest)));
}

// Ends a warp that has nothing to merge. What comes after this kernel relies on it alone for what decode wrote: it must
// not end before decode has, so that its first blocks wait in any case.
__device__ __forceinline__ void end_without_rows() {
  if (block_index().x == 0) wait_for_kernel_before();
}

// At least one block a multiprocessor: else ptxas saves registers for more, by asking for parts one after the other.
extern "C" __global__ void __launch_bounds__(threads, 1) combine(const __grid_constant__ AttuneDecodeParams params) {
  const bool warp_rows = params.warp_rows != 0;
  int kv_head = static_cast<int>(block_index().y);
  int row = static_cast<int>(block_index().z);
  if (warp_rows) {
    const int rows = params.seqlen_q * params.gqa_ratio;
    const int place = kv_head * variant::warps + static_cast<int>(warp_index());
    kv_head = place / rows;
    row = place - kv_head * rows;
    if (kv_head >= params.heads_kv) return end_without_rows();
  }
  const Slots slots(params, row);
  const QueryRow own(params, slots.batch, kv_head, row);
  if (slots.count == 0 || !own.exists) return end_without_rows();
  // Of the parts this warp takes those from `warp` on, `row_warps` apart.
  const int warp = warp_rows ? 0 : static_cast<int>(warp_index());
  const int row_warps = warp_rows ? 1 : variant::warps;
  const int lane_column = static_cast<int>(lane_index()) * 4;
  const PartialRows rows(params, kv_head, row, lane_column);
  // The `p`-th of a warp's parts from this one on: again the first where no more exist, rather than branch.
  const auto slot_of = [&](int part, int p) {
    return slots.at(part + p * row_warps < slots.count ? part + p * row_warps : part);
  };
  const int first_part = warp < slots.count ? warp : 0;
#pragma unroll
  for (int p = 0; p < at_once; ++p) {  // so that addresses are known before the wait
    prefetch_global(rows.lse_of(slot_of(first_part, p)));
    prefetch_global(rows.o_of(slot_of(first_part, p)));
  }
  wait_for_kernel_before();

  // An online softmax over the parts of this warp.
  float m = minus_infinity();
  float l = 0.0f;
  Float4 O[lane_chunks] = {};
  for (int part = warp; part < slots.count; part += at_once * row_warps) {
    Float4 part_O[at_once][lane_chunks];
    float lse[at_once];
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      lse[p] = load_global_float(rows.lse_of(slot_of(part, p)));
#pragma unroll
      for (int c = 0; c < lane_chunks; ++c) {
        const bool exists = c == 0 || lane_column + c * warp_size * 4 < params.head_dim;
        part_O[p][c] = load_global_floats(rows.o_of(slot_of(part, p)) + (exists ? c * warp_size * 4 : 0));
      }
    }
#pragma unroll
    for (int p = 1; p < at_once; ++p) {
      if (part + p * row_warps >= slots.count) lse[p] = minus_infinity();
    }
    const float before = m;
#pragma unroll
    for (int p = 0; p < at_once; ++p) m = larger(m, lse[p]);
    const float shift = merged_shift(m, m);
    const float correction = exp2_approx(before - shift);
    l *= correction;
#pragma unroll
    for (int c = 0; c < lane_chunks; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) O[c].value[e] *= correction;
    }
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      const float weight = exp2_approx(lse[p] - shift);
      l += weight;
#pragma unroll
      for (int c = 0; c < lane_chunks; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) O[c].value[e] += weight * part_O[p][c].value[e];
      }
    }
  }

  if (warp_rows) {
#pragma unroll
    for (int c = 0; c < lane_chunks; ++c) {
      const int column = lane_column + c * static_cast<int>(warp_size) * 4;
      if (column < params.head_dim) store(own, params, column, l, m, O[c]);
    }
    return;
  }
  constexpr u32 warp_bytes = variant::head_dim * 4;
  const u32 sums = shared_memory();
  const u32 statistics = sums + variant::warps * warp_bytes;
#pragma unroll
  for (int c = 0; c < lane_chunks; ++c) {
    const u32 column = static_cast<u32>(lane_column + c * warp_size * 4);
    if (column < variant::head_dim) store_shared(sums + static_cast<u32>(warp) * warp_bytes + column * 4, O[c]);
  }
  if (lane_index() == 0) store_shared(statistics + static_cast<u32>(warp) * 8, m, l);
  block_barrier();
  const int own_column = static_cast<int>(thread_index()) * 4;
  if (own_column >= params.head_dim) return;
  float largest = minus_infinity();
#pragma unroll
  for (u32 w = 0; w < variant::warps; ++w) largest = larger(largest, load_shared_float(statistics + w * 8));
  const float shift = merged_shift(largest, largest);
  float sum_l = 0.0f;
  Float4 sum = {};
#pragma unroll
  for (u32 w = 0; w < variant::warps; ++w) {
    const float weight = exp2_approx(load_shared_float(statistics + w * 8) - shift);
    const float warp_l = load_shared_float(statistics + w * 8 + 4);
    merge_part(sum_l, sum, weight, warp_l,
               load_shared_floats(sums + w * warp_bytes + static_cast<u32>(own_column) * 4));
  }
  store(own, params, own_column, sum_l, largest, sum);
}
