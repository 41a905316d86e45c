// Flash-Decoding, second stage: the parts of a row become one, O = sum of 2^(LSE_i - LSE) O_i with
// 2^LSE = sum of 2^LSE_i.
//
// A block combines one row. Each warp takes every `warps`-th part, a lane some columns of it; then the warps' sums meet
// in shared memory. What is read is small and just written, so that latency limits: a warp asks for all it needs of 32
// parts at once, before it knows their weights, and again for parts that do not exist rather than branch.
#include "decode_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int head_dim = 128;
constexpr int warps = 4;
constexpr bool ragged = false;
}  // namespace variant

#if variant::ragged
#include "blocks/ragged_query_rows.cuh"
#else
#include "blocks/query_rows.cuh"
#endif
#include "blocks/parts.cuh"
#include "ptx/floats.cuh"
#include "ptx/grid.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/lanes.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/reciprocal.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int lane_chunks = (variant::head_dim / 4 + warp_size - 1) / warp_size;  // of four columns
constexpr int warp_parts = warp_size / variant::warps;                            // of 32

// The `p`-th part of 32 that this warp adds up.
__device__ __forceinline__ int own_part(int p) { return p * variant::warps + static_cast<int>(warp_index()); }

// The slots of a sequence's parts: first, and then from `next` on every `step`-th.
struct Slots {
  int batch;
  int count;
  int first;
  int next;
  int step;

  // The sequence that this block combines; none (count 0) where it has one part or another block does it. All lanes of
  // a warp together.
  __device__ __forceinline__ explicit Slots(const AttuneDecodeParams& params) : count(0) {
    const int first_row = Queries::tile_of(params, static_cast<int>(block_index().z));
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

extern "C" __global__ void __launch_bounds__(threads) combine(const __grid_constant__ AttuneDecodeParams params) {
  const Slots slots(params);
  wait_for_kernel_before();
  if (slots.count == 0) return;
  const int kv_head = static_cast<int>(block_index().y);
  const int row = static_cast<int>(block_index().z);
#if variant::ragged
  if (!QueryRow(params, slots.batch, kv_head, row).exists) return;
#endif
  const int rows = params.seqlen_q * params.gqa_ratio;
  const int lane = static_cast<int>(lane_index());
  const u32 warp = warp_index();
  const auto partial_row = [&](int part) {
    return (static_cast<i64>(slots.at(part < slots.count ? part : 0)) * params.heads_kv + kv_head) * rows + row;
  };

  // An online softmax over 32 parts at a time, of which each warp adds up its own.
  float m = minus_infinity();
  float l = 0.0f;  // this lane's parts
  Float4 O[lane_chunks] = {};
  for (int first = 0; first < slots.count; first += warp_size) {
    Float4 part_O[warp_parts][lane_chunks];
#pragma unroll
    for (int p = 0; p < warp_parts; ++p) {
      const float* from = params.partial_o + partial_row(first + own_part(p)) * params.head_dim;
#pragma unroll
      for (int c = 0; c < lane_chunks; ++c) {
        const int column = (c * warp_size + lane) * 4;
        part_O[p][c] = load_global_floats(from + (column < params.head_dim ? column : 0));
      }
    }
    const bool exists = first + lane < slots.count;
    const float lse = exists ? load_global_float(params.partial_lse + partial_row(first + lane)) : minus_infinity();
    const float before = m;
    m = larger(m, largest_of_lanes(lse));
    const float shift = m == minus_infinity() ? 0.0f : m;
    const float correction = exp2_approx(before - shift);
    const float weight = exp2_approx(lse - shift);
    l = l * correction + weight;
#pragma unroll
    for (int c = 0; c < lane_chunks; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) O[c].value[e] *= correction;
#pragma unroll
      for (int p = 0; p < warp_parts; ++p) {
        const float part_weight = shuffle_from(weight, static_cast<u32>(own_part(p)));
#pragma unroll
        for (int e = 0; e < 4; ++e) O[c].value[e] += part_weight * part_O[p][c].value[e];
      }
    }
  }
  l = sum_of_lanes(l);

  const u32 sums = shared_memory();
  constexpr u32 warp_bytes = variant::head_dim * 4;
#pragma unroll
  for (int c = 0; c < lane_chunks; ++c) {
    const u32 column = static_cast<u32>(c * warp_size + lane) * 4;
    if (column < variant::head_dim) store_shared(sums + warp * warp_bytes + column * 4, O[c]);
  }
  block_barrier();
  const QueryRow own(params, slots.batch, kv_head, row);
  const bool empty = l == 0.0f;
  const float inverse = empty ? 0.0f : reciprocal_approx(l);
  const int column = static_cast<int>(thread_index()) * 4;
  if (column < params.head_dim) {
    Float4 sum = {};
#pragma unroll
    for (u32 w = 0; w < variant::warps; ++w) {
      const Float4 more = load_shared_floats(sums + w * warp_bytes + static_cast<u32>(column) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum.value[e] += more.value[e];
    }
    char* to = own.in(params.o) + column * 2;
    store_global(to, pack<variant::dtype>(sum.value[0] * inverse, sum.value[1] * inverse),
                 pack<variant::dtype>(sum.value[2] * inverse, sum.value[3] * inverse));
  }
  if (thread_index() == 0) {
    own.store_lse(params, empty ? minus_infinity() : m + log2_approx(l));
  }
}
