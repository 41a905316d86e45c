// Where blocks of K and V come from: pages of a cache, which a table names.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/divisor.cuh"
#include "params.h"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// How many keys a sequence has; whatever the array says, no fewer than none and no more than the most.
__device__ __forceinline__ int keys_in_pages(const AttunePrefillParams& params, int batch) {
  const int used = load_global_int(params.seqused_k + batch);
  const int inside = used < params.seqlen_k ? used : params.seqlen_k;
  return inside > 0 ? inside : 0;
}

// Threads lie over a block as those of TileCopy do. Each lane looks up some of the rows that its warp copies, once for
// K and V, and a block ahead, as a table has its latency too; the others ask it where a row is.
template <class KVTile, int threads, bool async, bool cut>
struct PageSource {
  using TileType = KVTile;
  static constexpr u32 rows_at_once = threads / KVTile::span;
  static constexpr u32 warp_rows = warp_size / KVTile::span;  // of those, a warp's
  static constexpr u32 steps = (KVTile::rows + rows_at_once - 1) / rows_at_once;
  static constexpr u32 places = (steps * warp_rows + warp_size - 1) / warp_size;  // that a lane looks up
  static constexpr i64 nowhere = -chunk_bytes;

  struct Place {
    int page;  // outside 0 to pages - 1: there is no such key
    int token;
  };

  const AttunePrefillParams& params;
  const int* table;  // the sequence's
  int keys;
  int key;            // of this lane's first place in the next block to request
  const char* K;      // this thread's first chunk of the head in page 0
  const char* V;      // likewise
  int columns_left;   // from that chunk on
  Place own[places];  // in that block

  // Those of a sequence's head, `keys` in all, beginning with the block at `first_key`.
  template <class Sequence>
  __device__ __forceinline__ PageSource(const AttunePrefillParams& params, const Sequence& sequence, int head, int keys,
                                        int first_key)
      : params(params), table(params.block_table + static_cast<i64>(sequence.batch) * params.table_width), keys(keys) {
    const u32 lane = lane_index();
    const u32 row = lane / warp_rows * rows_at_once + warp_index() * warp_rows + lane % warp_rows;
    key = first_key + static_cast<int>(row);
    const u32 thread_chunk = lane % KVTile::span;
    const int columns = key_columns<cut>(params);
    K = head_of(params.k, 0, head, keys, columns).at(0, thread_chunk);
    V = head_of(params.v, 0, head, keys, columns).at(0, thread_chunk);
    columns_left = columns - static_cast<int>(thread_chunk * chunk);
    find();
  }

  // Copies the operand's next block: K, then V, then those of the block before. Keys that do not exist become zeros and
  // are never read, so that nothing in other pages reaches a product.
  template <Operand operand, bool /*whole*/>
  __device__ __forceinline__ void copy(const KVTile& tile) {
    const AttuneTensor& tensor = operand == Operand::K ? params.k : params.v;
    const char* head = operand == Operand::K ? K : V;
    i64 bytes[places];  // from page 0 to the rows that this lane knows
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const bool exists = static_cast<u32>(own[p].page) < static_cast<u32>(params.pages);
      bytes[p] = exists ? (own[p].page * tensor.stride_batch + own[p].token * tensor.stride_seq) * 2 : nowhere;
    }
    const u32 lane = lane_index();
    const u32 thread_row = thread_index() / KVTile::span;
#pragma unroll
    for (u32 s = 0; s < steps; ++s) {
      const u32 row = thread_row + s * rows_at_once;
      if (KVTile::rows % rows_at_once != 0 && row >= KVTile::rows) break;  // all of the warp
      const u32 known = s * warp_rows;
      const i64 offset = shuffled(bytes[known / warp_size], known % warp_size + lane / KVTile::span);
#pragma unroll
      for (u32 c = 0; c < KVTile::chunks; c += KVTile::span) {
        const bool exists = offset != nowhere && static_cast<int>(c * chunk) < columns_left;
        const u32 to = tile.at(row, lane % KVTile::span + c);
        const char* from = head + offset + c * chunk_bytes;
        if constexpr (cut) {
          cp_async(to, from, bytes_of_columns(columns_left - static_cast<int>(c * chunk)), exists);
        } else {
          copy_chunk<async>(to, from, exists);
        }
      }
    }
    if constexpr (operand == Operand::V) {
      key -= KVTile::rows;
      find();
    }
  }

 private:
  __device__ __forceinline__ void find() {
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const int one = key + static_cast<int>(p * KVTile::span * rows_at_once);
      own[p] = {-1, 0};
      if (static_cast<u32>(one) >= static_cast<u32>(keys)) continue;  // in front of the first block, too
      const int entry = static_cast<int>(quotient_of(static_cast<u32>(one), params.page_multiplier, params.page_shift));
      own[p] = {load_global_int(table + entry), one - entry * params.page_size};
    }
  }

  __device__ __forceinline__ static i64 shuffled(i64 value, u32 source) {
    const int high = shuffle_from(static_cast<int>(value >> 32), source);
    const int low = shuffle_from(static_cast<int>(value), source);
    return static_cast<i64>(high) << 32 | static_cast<u32>(low);
  }
};
