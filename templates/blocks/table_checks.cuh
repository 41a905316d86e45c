// What is wrong with a sequence's entries in the tables of a cache.
#pragma once

#include "check_params.h"
#include "ptx/lanes.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

constexpr int no_fault = 0;
constexpr int fault_of_queries = 1;
constexpr int fault_of_keys = 2;
constexpr int fault_of_length = 3;
constexpr int fault_of_leftpad = 4;
constexpr int fault_of_page = 5;
constexpr int fault_of_slot = 6;
constexpr int fault_of_used_queries = 7;

// AttuneTableFault as the 16 bytes that one access moves.
struct TableFault {
  int kind;
  int batch;
  int position;

  TableFault() = default;
  __device__ __forceinline__ TableFault(int kind, int batch, int position)
      : kind(kind), batch(batch), position(position) {}
  __device__ __forceinline__ explicit TableFault(const Chunk& words)
      : kind(static_cast<int>(words.word[0])),
        batch(static_cast<int>(words.word[1])),
        position(static_cast<int>(words.word[2])) {}

  __device__ __forceinline__ Chunk words() const {
    return {static_cast<u32>(kind), static_cast<u32>(batch), static_cast<u32>(position), 0};
  }
};

// The first of the positions from `first` on, below `end`, that is_wrong() names; `end` where none is. All lanes of a
// warp together.
template <class IsWrong>
__device__ __forceinline__ int first_wrong(int first, int end, const IsWrong& is_wrong) {
  const u32 lane = lane_index();
#pragma unroll 1
  for (int i = first; i < end; i += warp_size) {
    const int own = i + static_cast<int>(lane);
    int nearest = own < end && is_wrong(own) ? own : end;
#pragma unroll
    for (u32 distance = 1; distance < warp_size; distance *= 2) {
      const int other = shuffle_from(nearest, lane ^ distance);
      if (other < nearest) nearest = other;
    }
    if (nearest < end) return nearest;
  }
  return end;
}

// A sequence's rows as cu_seqlens has them.
struct GivenRows {
  int begin;
  int end;

  __device__ __forceinline__ GivenRows(const int* cu_seqlens, int batch)
      : begin(load_global_int(cu_seqlens + batch)), end(load_global_int(cu_seqlens + batch + 1)) {}

  __device__ __forceinline__ int count() const { return end - begin; }

  // No fault where they are among `total`.
  __device__ __forceinline__ TableFault fault(int kind, int batch, int total) const {
    if (begin < 0 || begin > total) return {kind, batch, 0};
    if (end < begin || end > total) return {kind, batch, 1};
    return {};
  }
};

// The first thing that is wrong with a sequence. All lanes of a warp together.
__device__ __forceinline__ TableFault fault_of(const AttuneCheckParams& params, int batch) {
  int queries = params.seqlen_q;
  bool uses_rows = true;  // of those that there are
  if (params.cu_seqlens_q != nullptr) {
    const GivenRows rows(params.cu_seqlens_q, batch);
    const TableFault fault = rows.fault(fault_of_queries, batch, params.total_q);
    if (fault.kind != no_fault) return fault;
    if (rows.count() < queries) queries = rows.count();
    const int used = params.seqused_q == nullptr ? rows.count() : load_global_int(params.seqused_q + batch);
    uses_rows = used >= 0 && used <= rows.count();
    if (used < queries) queries = used > 0 ? used : 0;
  }

  int most = params.max_seqlen_k - params.seqlen_new;
  if (params.cu_seqlens_k != nullptr) {
    const GivenRows rows(params.cu_seqlens_k, batch);
    const TableFault fault = rows.fault(fault_of_keys, batch, params.total_k);
    if (fault.kind != no_fault) return fault;
    most = rows.count();
  }
  const int before = params.seqlens_k == nullptr ? most : load_global_int(params.seqlens_k + batch);
  if (before < 0 || before > most) return {fault_of_length, batch, 0};
  const int missing = params.leftpad_k == nullptr ? 0 : load_global_int(params.leftpad_k + batch);
  if (missing < 0 || missing > before) return {fault_of_leftpad, batch, 0};

  if (params.block_table != nullptr) {
    const int end = before + params.seqlen_new;
    const int seen = end - queries - params.window_left;
    const int first_seen = queries == 0 ? before : params.window_left < 0 || seen < missing ? missing : seen;
    const int first = first_seen < before ? first_seen : before;
    const int entries = first < end ? (end + params.page_size - 1) / params.page_size : 0;
    const i64 row = static_cast<i64>(batch) * params.table_width;
    const int used = entries < params.table_width ? entries : params.table_width;
    const int wrong = first_wrong(first / params.page_size, used, [&](int entry) {
      return static_cast<u32>(load_global_int(params.block_table + row + entry)) >= static_cast<u32>(params.pages);
    });
    if (wrong < used) return {fault_of_page, batch, wrong};
  }

  if (params.slots != nullptr) {
    const i64 places = static_cast<i64>(params.pages) * params.page_size;
    const i64 row = static_cast<i64>(batch) * params.seqlen_new;
    const int wrong = first_wrong(0, params.seqlen_new, [&](int token) {
      const i64 slot = load_global_long(params.slots + row + token);
      return slot < -1 || slot >= places;
    });
    if (wrong < params.seqlen_new) return {fault_of_slot, batch, wrong};
  }
  if (!uses_rows) return {fault_of_used_queries, batch, 0};
  return {};
}
