// A warp's strip of keys and values from the cache to shared memory: pages that a table names, or one page a sequence.
#pragma once

#include "blocks/tile.cuh"
#include "decode_params.h"
#include "ptx/cache_policy.cuh"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Where the keys of a strip are, looked up a step ahead, as a table has its latency too. With pages a lane has that of
// row lane % rows; else all lanes have the first row's.
struct KeyPlace {
  int page;  // outside 0 to pages - 1: there is no such key
  int token;
};

template <class Strip, bool paged>
struct CacheCopy {
  static constexpr u32 rows_at_once = warp_size / Strip::span;
  static_assert(Strip::rows <= warp_size);

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
      const int key = first_key + static_cast<int>(lane_index() % Strip::rows);
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
    const u32 lane_chunk = lane_index() % Strip::span;
    const auto at = [&](int page, int token) {
      return matrix + (page * tensor.stride_batch + token * tensor.stride_seq) * 2;
    };
    const auto is_page = [&](int page) { return static_cast<u32>(page) < static_cast<u32>(pages); };
    const int keys = is_page(place.page) ? seqlen - place.token - static_cast<int>(lane_row) : 0;
    const char* row = at(keys > 0 ? place.page : 0, place.token + static_cast<int>(lane_row));
#pragma unroll
    for (u32 r = 0; r < Strip::rows; r += rows_at_once) {
      bool row_exists = static_cast<int>(r) < keys;
      if constexpr (paged) {
        const int page = shuffle_from(place.page, lane_row + r);
        row_exists = is_page(page);
        row = at(row_exists ? page : 0, shuffle_from(place.token, lane_row + r));
      }
#pragma unroll
      for (u32 c = 0; c < Strip::chunks; c += Strip::span) {
        const bool exists = row_exists && static_cast<int>(c * chunk) < columns_left;
        cp_async(strip.at(lane_row + r, lane_chunk + c), row + c * chunk_bytes, exists, policy);
      }
      row += rows_at_once * tensor.stride_seq * 2;
    }
  }
};
