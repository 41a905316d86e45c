// A warp's strip of keys and values from the cache to shared memory: pages that a table names, or one page a sequence.
#pragma once

#include "blocks/tile.cuh"
#include "decode_params.h"
#include "ptx/cache_policy.cuh"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Where keys of a strip are, looked up a step ahead, as a table has its latency too. With pages a lane has that of its
// own row (own_row()); else all lanes have the first row's.
struct KeyPlace {
  int page;  // outside 0 to pages - 1: there is no such key
  int token;
};

template <class Strip, bool paged>
struct CacheCopy {
  static constexpr u32 rows_at_once = warp_size / Strip::span;
  static constexpr u32 steps = Strip::rows / rows_at_once;
  static_assert(Strip::rows % rows_at_once == 0 && steps <= Strip::span);
  static constexpr i64 nowhere = -chunk_bytes;  // no stride is negative, so that no row is in front of page 0

  const char* k;  // this lane's first chunk of the head
  const char* v;
  int columns_left;  // from that chunk on
  u64 policy;

  __device__ __forceinline__ CacheCopy(const AttuneDecodeParams& params, int head)
      : policy(cache_policy(params.evict_first != 0)) {
    const u32 column_chunk = lane_index() % Strip::span;
    k = static_cast<const char*>(params.k.data) + head * params.k.stride_head * 2 + column_chunk * chunk_bytes;
    v = static_cast<const char*>(params.v.data) + head * params.v.stride_head * 2 + column_chunk * chunk_bytes;
    columns_left = params.head_dim - static_cast<int>(column_chunk * chunk);
  }

  // Of the strip that begins at `first_key` of a sequence.
  __device__ __forceinline__ static KeyPlace find(const AttuneDecodeParams& params, int batch, int seqlen,
                                                  int first_key) {
    const i64 row = static_cast<i64>(batch) * params.table_width;
    if constexpr (paged) {
      const int key = first_key + static_cast<int>(own_row());
      if (key >= seqlen) return {-1, 0};
      const int page = static_cast<int>(static_cast<u32>(key) / static_cast<u32>(params.page_size));
      return {load_global_int(params.block_table + row + page), key - page * params.page_size};
    }
    return {params.block_table == nullptr ? batch : load_global_int(params.block_table + row), first_key};
  }

  // Keys that do not exist become zeros and are never read, so that nothing in padding reaches a product.
  __device__ __forceinline__ void copy(const char* matrix, const AttuneTensor& tensor, int pages, int seqlen,
                                       const Strip& strip, const KeyPlace& place) const {
    const u32 lane_row = lane_index() / Strip::span;
    const auto at = [&](i64 page, i64 token) { return (page * tensor.stride_batch + token * tensor.stride_seq) * 2; };
    const bool is_page = static_cast<u32>(place.page) < static_cast<u32>(pages);
    if constexpr (paged) {
      // Two products of 64 bits: for each row once, not in all lanes that copy it. Selected, as a branch is more code.
      const u32 page = is_page ? static_cast<u32>(place.page) : 0;
      const i64 there = at(page, static_cast<u32>(place.token));
      const i64 own = is_page ? there : nowhere;
#pragma unroll
      for (u32 s = 0; s < steps; ++s) {
        const int high = shuffle_among<Strip::span>(static_cast<int>(own >> 32), s);
        const u32 low = static_cast<u32>(shuffle_among<Strip::span>(static_cast<int>(own), s));
        const i64 offset = static_cast<i64>(high) << 32 | low;
        copy_row(strip, lane_row + s * rows_at_once, matrix + offset, high >= 0);
      }
    } else {
      const int keys = is_page ? seqlen - place.token - static_cast<int>(lane_row) : 0;
      const char* row = matrix + at(keys > 0 ? place.page : 0, place.token + static_cast<int>(lane_row));
#pragma unroll
      for (u32 r = 0; r < Strip::rows; r += rows_at_once) {
        copy_row(strip, lane_row + r, row, static_cast<int>(r) < keys);
        row += rows_at_once * tensor.stride_seq * 2;
      }
    }
  }

 private:
  // The lanes that copy a row together own one of each of their steps: they ask one another, so that whom a lane asks
  // depends on the step alone.
  __device__ __forceinline__ static u32 own_row() {
    const u32 lane = lane_index();
    return lane / Strip::span + lane % Strip::span % steps * rows_at_once;
  }

  // This lane's chunks of a row, the first of which is at `from`.
  __device__ __forceinline__ void copy_row(const Strip& strip, u32 row, const char* from, bool row_exists) const {
    const u32 lane_chunk = lane_index() % Strip::span;
#pragma unroll
    for (u32 c = 0; c < Strip::chunks; c += Strip::span) {
      const bool exists = row_exists && static_cast<int>(c * chunk) < columns_left;
      cp_async(strip.at(row, lane_chunk + c), from + c * chunk_bytes, exists, policy);
    }
  }
};
