// A warp's strip of keys and values from the cache to shared memory: pages that a table names, or one page a sequence.
#pragma once

#include "blocks/divisor.cuh"
#include "blocks/partial_chunk.cuh"
#include "blocks/tile.cuh"
#include "decode_params.h"
#include "ptx/cache_policy.cuh"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// How a warp finds the keys of a strip: in a sequence of its own, in pages whose sizes are multiples of 16 keys, or in
// pages of any size.
enum class Pages { none, of_16, any };

struct KeyPlace {
  int page;  // outside 0 to pages - 1: there is no such key
  int token;
};

template <class Strip, Pages page_sizes, bool cut>
struct CacheCopy {
  // Lanes side by side over a row. Rows of whole runs of 128 bytes are asked for by the run. Others are asked for at
  // once, so that each sector of 32 bytes is read once, also where rows begin within one (head_dims that are odd
  // multiples of 8): by `span` lanes, some of these would be read by two or three instructions.
  static constexpr bool by_runs = Strip::span == 8;
  static constexpr u32 lanes_abreast = by_runs || Strip::chunks <= 8 ? 8 : Strip::chunks <= 16 ? 16 : 32;
  static constexpr u32 rows_at_once = warp_size / lanes_abreast;
  static constexpr u32 steps = Strip::rows / rows_at_once;
  // A strip falls into pieces whose keys lie one behind the other.
  static constexpr u32 piece = page_sizes == Pages::of_16 ? 16 : Strip::rows;
  static constexpr u32 pieces = Strip::rows / piece;
  static_assert(Strip::rows % rows_at_once == 0 && Strip::rows % piece == 0 && piece % rows_at_once == 0);
  static_assert(page_sizes != Pages::any || steps <= lanes_abreast);
  static constexpr i64 nowhere = -chunk_bytes;  // no stride is negative, so that no row is in front of page 0

  // Where the keys of a strip are, looked up a step ahead, as a table has its latency too. With pages of any size a
  // lane has the place of its own row (own_row()); else all lanes have those of each piece's first row.
  struct Place {
    KeyPlace of[pieces];
    int first_key;
  };

  const char* k;  // this lane's first chunk of the head
  const char* v;
  int columns_left;  // from that chunk on
  u64 policy;

  __device__ __forceinline__ CacheCopy(const AttuneDecodeParams& params, int head)
      : policy(cache_policy(params.evict_first != 0)) {
    const u32 column_chunk = lane_index() % lanes_abreast;
    const u32 own_head = static_cast<u32>(head);  // a product of 64 bits less where the upper half is known
    k = static_cast<const char*>(params.k.data) + own_head * params.k.stride_head * 2 + column_chunk * chunk_bytes;
    v = static_cast<const char*>(params.v.data) + own_head * params.v.stride_head * 2 + column_chunk * chunk_bytes;
    columns_left = (cut ? params.key_columns : params.head_dim) - static_cast<int>(column_chunk * chunk);
  }

  // Of the strip that begins at `first_key` of a sequence, whose keys are those from `begin` on, below `seqlen`.
  __device__ __forceinline__ static Place find(const AttuneDecodeParams& params, int batch, int begin, int seqlen,
                                               int first_key) {
    const i64 row = static_cast<i64>(batch) * params.table_width;
    if constexpr (page_sizes == Pages::none) {
      const int page = params.block_table == nullptr ? batch : load_global_int(params.block_table + row);
      return {{{page, first_key}}, first_key};
    } else if constexpr (page_sizes == Pages::any) {
      const int key = first_key + static_cast<int>(own_row());
      if (key < begin || key >= seqlen) return {{{-1, 0}}, first_key};
      const int entry = entry_of(params, key);
      return {{{load_global_int(params.block_table + row + entry), key - entry * params.page_size}}, first_key};
    } else {
      int entry = entry_of(params, first_key);
      int token = first_key - entry * params.page_size;
      Place place;
      place.first_key = first_key;
#pragma unroll
      for (u32 p = 0; p < pieces; ++p) {
        const bool exists = first_key + static_cast<int>(p * piece) < seqlen;
        place.of[p] = {exists ? load_global_int(params.block_table + row + entry) : -1, token};
        token += static_cast<int>(piece);
        if (token >= params.page_size) {
          token = 0;
          ++entry;
        }
      }
      return place;
    }
  }

  // That of the strip which lane `step` looked up, for all lanes; each lane has one of its own.
  __device__ __forceinline__ static Place found_by(u32 step, const Place& own, int first_key) {
    Place place;
    place.first_key = first_key;
#pragma unroll
    for (u32 p = 0; p < pieces; ++p) {
      place.of[p] = {shuffle_from(own.of[p].page, step), shuffle_from(own.of[p].token, step)};
    }
    return place;
  }

  // Keys that do not exist become zeros and are never read, so that nothing in padding reaches a product. Scores of
  // those in front of `begin` are masked, so that K may have anything there; but V may not, as a weight of 0 times NaN
  // is NaN.
  template <bool masked_in_front>
  __device__ __forceinline__ void copy(const char* matrix, const AttuneTensor& tensor, int pages, int begin, int seqlen,
                                       const Strip& strip, const Place& place) const {
    const u32 lane_row = lane_index() / lanes_abreast;
    const auto at = [&](u32 page, u32 token) { return (page * tensor.stride_batch + token * tensor.stride_seq) * 2; };
    const auto is_page = [&](int page) { return static_cast<u32>(page) < static_cast<u32>(pages); };
    if constexpr (page_sizes == Pages::any) {
      // Two products of 64 bits: for each row once, not in all lanes that copy it. Selected, as a branch is more code.
      const bool exists = is_page(place.of[0].page);
      const i64 there = at(static_cast<u32>(exists ? place.of[0].page : 0), static_cast<u32>(place.of[0].token));
      const i64 own = exists ? there : nowhere;
#pragma unroll
      for (u32 s = 0; s < steps; ++s) {
        const int high = shuffle_among<lanes_abreast>(static_cast<int>(own >> 32), s);
        const u32 low = static_cast<u32>(shuffle_among<lanes_abreast>(static_cast<int>(own), s));
        const i64 offset = static_cast<i64>(high) << 32 | low;
        copy_row(strip, lane_row + s * rows_at_once, matrix + offset, high >= 0 && (by_runs || columns_left > 0));
      }
    } else if (by_runs || has_chunk()) {
#pragma unroll
      for (u32 p = 0; p < pieces; ++p) {
        const KeyPlace& first = place.of[p];
        const int key = place.first_key + static_cast<int>(p * piece + lane_row);
        const int keys = is_page(first.page) && (by_runs || columns_left > 0) ? seqlen - key : 0;
        const int missing = begin - key;  // in front of the first
        const char* row =
            matrix + at(static_cast<u32>(keys > 0 ? first.page : 0), static_cast<u32>(first.token) + lane_row);
#pragma unroll
        for (u32 r = 0; r < piece; r += rows_at_once) {
          const bool exists = (masked_in_front || static_cast<int>(r) >= missing) && static_cast<int>(r) < keys;
          copy_row(strip, lane_row + p * piece + r, row, exists);
          row += rows_at_once * tensor.stride_seq * 2;
        }
      }
    }
  }

 private:
  // Which of a sequence's pages has a key.
  __device__ __forceinline__ static int entry_of(const AttuneDecodeParams& params, int key) {
    return static_cast<int>(quotient_of(static_cast<u32>(key), params.page_multiplier, params.page_shift));
  }

  // The lanes that copy a row together own one of each of their steps: they ask one another, so that whom a lane asks
  // depends on the step alone.
  __device__ __forceinline__ static u32 own_row() {
    const u32 lane = lane_index();
    return lane / lanes_abreast + lane % lanes_abreast % steps * rows_at_once;
  }

  // Whether this lane has a chunk of rows that are asked for at once.
  __device__ __forceinline__ static bool has_chunk() { return lane_index() % lanes_abreast < Strip::chunks; }

  // This lane's chunks of a row, the first of which is at `from`.
  __device__ __forceinline__ void copy_row(const Strip& strip, u32 row, const char* from, bool row_exists) const {
    const u32 lane_chunk = lane_index() % lanes_abreast;
    if constexpr (by_runs) {
#pragma unroll
      for (u32 c = 0; c < Strip::chunks; c += lanes_abreast) {
        const bool exists = row_exists && static_cast<int>(c * chunk) < columns_left;
        const u32 bytes = cut ? bytes_of_columns(columns_left - static_cast<int>(c * chunk)) : chunk_bytes;
        cp_async(strip.at(row, lane_chunk + c), from + c * chunk_bytes, bytes, exists, policy);
      }
    } else if (page_sizes != Pages::any || has_chunk()) {
      const u32 bytes = cut ? bytes_of_columns(columns_left) : chunk_bytes;
      cp_async(strip.at_chunk_below_32(row, lane_chunk), from, bytes, row_exists, policy);
    }
  }
};
