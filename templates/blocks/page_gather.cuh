// Blocks of keys from pages of any size, 16 bytes a lane: a warp copies a block, four rows at once. Rows have whole
// chunks of columns.
//
// These copies are ordinary writes to shared memory, which products read past the usual order: who wrote waits for its
// copies, and fences, before it says that they are there. The fence waits for all that the warp has under way, so that
// a warp has one block under way, and other warps the next ones.
#pragma once

#include "blocks/page_table.cuh"
#include "paged_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/lanes.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "types.h"

template <u32 B_c>
struct PageGather {
  static constexpr u32 row_lanes = 8;                               // 128 bytes of a row
  static constexpr u32 group_rows = warp_size / row_lanes;          // that the warp copies at once
  static constexpr u32 places = (B_c + warp_size - 1) / warp_size;  // that a lane looks up
  static constexpr u32 nowhere = ~0u;

  struct Pages {
    int page[places];  // of rows lane, lane + 32, ... of the block; -1: there is none
  };

  const AttunePages& pages;

  __device__ __forceinline__ explicit PageGather(const AttunePages& pages) : pages(pages) {}

  // Looks up the pages of a block of keys. Nothing waits for the table before load().
  template <class Tile>
  __device__ __forceinline__ Pages find(const Tile& tile, int block) const {
    const u32 lane = lane_anew();
    Pages found;
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const u32 row = p * warp_size + lane;
      const int key = block * static_cast<int>(B_c) + static_cast<int>(row);
      found.page[p] = -1;
      if (block < 0 || row >= B_c || key >= tile.keys.count) continue;
      found.page[p] = load_global_int(table_of(pages, tile.batch) + entry_of(pages, key));
    }
    return found;
  }

  // The warp: waits for the ring's stage, and fetches a block of the head's keys or values, which is there on return.
  template <Cached operand, class Params, class Ring, class Tile>
  __device__ __forceinline__ void load(const Params& /*params*/, const Ring& ring, const Tile& /*tile*/, int kv_head,
                                       int block, const Pages& found) const {
    using KVTile = decltype(ring.tile());
    ring.claim();
    warp_barrier();  // or what follows is compiled as if lanes had parted
    const AttunePagedRows& rows = operand == Cached::K ? pages.k : pages.v;
    const u32 lane = lane_anew();
    const u32 column = lane % row_lanes;
    const int left = rows.columns - static_cast<int>(column) * chunk;
    const char* const head = static_cast<const char*>(rows.data) +
                             static_cast<u64>(static_cast<u32>(kv_head) * rows.head_chunks + column) * chunk_bytes;
    const u32 corner = ring.tile().chunk(lane / row_lanes, column);
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const int key = block * static_cast<int>(B_c) + static_cast<int>(p * warp_size + lane);
      const u32 token = static_cast<u32>(key) - entry_of(pages, key) * static_cast<u32>(pages.page_size);
      const u32 page = static_cast<u32>(found.page[p]);
      // Of the row that this lane has looked up, in chunks.
      const u32 own =
          page < static_cast<u32>(pages.pages) ? page * rows.page_chunks + token * rows.row_chunks : nowhere;
      const u32 end = B_c - p * warp_size < warp_size ? B_c - p * warp_size : warp_size;
#pragma unroll 4
      for (u32 row = 0; row < end; row += group_rows) {
        const u32 offset = static_cast<u32>(shuffle_from(static_cast<int>(own), row + lane / row_lanes));
        const char* const from = head + static_cast<u64>(offset) * chunk_bytes;
        const u32 to = (corner ^ row % 8 * chunk_bytes) + (p * warp_size + row) * KVTile::row_bytes;
#pragma unroll
        for (int c = 0; c < KVTile::count; ++c) {
          const bool exists = offset != nowhere && c * KVTile::width < left;
          cp_async(to + c * KVTile::panel_bytes, from + c * KVTile::row_bytes, exists);
        }
      }
    }
    cp_async_commit();
    cp_async_wait<0>();
    fence_for_copies();
    warp_barrier();  // lane 0 arrives for all
    if (lane_index() == 0) mbarrier_arrive(ring.full());
  }
};
