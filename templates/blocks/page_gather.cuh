// Blocks of keys from pages of any size, 16 bytes a thread: warps share a block's rows, four after each other a warp.
// Rows have whole chunks of columns.
//
// These copies are ordinary writes to shared memory, which products read past the usual order: who wrote waits for its
// copies, and fences, before it says that they are there. It does so one block late, so that the next block's copies
// are under way meanwhile; or at once where it would wait for a stage.
#pragma once

#include "blocks/page_table.cuh"
#include "blocks/ring.cuh"
#include "paged_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/lanes.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// A ring that `writers` warps fill by themselves.
template <class Tile, int stages, int readers, int writers>
struct GatheredRing : Ring<Tile, stages, readers> {
  __device__ __forceinline__ void create() const {
    for (u32 s = 0; s < stages; ++s) {
      mbarrier_init(this->barriers + s * mbarrier_bytes, writers);
      mbarrier_init(this->barriers + (stages + s) * mbarrier_bytes, readers);
    }
  }
};

template <u32 B_c, u32 loaders>
struct PageGather {
  static constexpr u32 row_lanes = 8;                       // 128 bytes of a row
  static constexpr u32 group_rows = warp_size / row_lanes;  // that a warp copies at once
  static constexpr u32 groups = B_c / group_rows;           // of a block
  static constexpr u32 steps = (groups + loaders - 1) / loaders;
  static constexpr u32 places = (steps * group_rows + warp_size - 1) / warp_size;  // that a lane looks up
  static constexpr u32 step_rows = loaders * group_rows;
  static constexpr u32 nowhere = ~0u;

  struct Pages {
    int page[places];  // of the rows that this lane has looked up; -1: there is none
  };

  const AttunePages& pages;
  u32 loader;       // this warp, of all that load
  u32 pending = 0;  // the mbarrier of a block that is under way

  __device__ __forceinline__ PageGather(const AttunePages& pages, u32 loader) : pages(pages), loader(loader) {}

  // Looks up the pages of a block of keys. Nothing waits for the table before load().
  template <class Tile>
  __device__ __forceinline__ Pages find(const Tile& tile, int block) const {
    const u32 lane = lane_anew();
    Pages found;
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const int row = row_of(p, lane);
      const int key = block * static_cast<int>(B_c) + row;
      found.page[p] = -1;
      if (block < 0 || row >= static_cast<int>(B_c) || key >= tile.keys.count) continue;
      found.page[p] = load_global_int(table_of(pages, tile.batch) + entry_of(pages, key));
    }
    return found;
  }

  // The warp: waits for a stage, and begins to fetch its rows of a block of the head's keys or values.
  template <Cached operand, class Params, class Ring, class Tile>
  __device__ __forceinline__ void load(const Params& /*params*/, Ring& ring, const Tile& /*tile*/, int kv_head,
                                       int block, const Pages& found) {
    using KVTile = decltype(ring.tile());
    if (any_lane(!mbarrier_test(ring.empty(), ring.parity ^ 1))) {
      finish();
      ring.claim();
      warp_barrier();  // or what follows is compiled as if lanes had parted
    }
    const AttunePagedRows& rows = operand == Cached::K ? pages.k : pages.v;
    const u32 lane = lane_anew();
    const u32 column = lane % row_lanes;
    const int left = rows.columns - static_cast<int>(column) * chunk;
    const char* const head = static_cast<const char*>(rows.data) +
                             static_cast<u64>(static_cast<u32>(kv_head) * rows.head_chunks + column) * chunk_bytes;
    u32 to = ring.tile().chunk(loader * group_rows + lane / row_lanes, column);
    u32 group = loader;
#pragma unroll
    for (u32 p = 0; p < places; ++p) {
      const int key = block * static_cast<int>(B_c) + row_of(p, lane);
      const u32 token = static_cast<u32>(key) - entry_of(pages, key) * static_cast<u32>(pages.page_size);
      const u32 page = static_cast<u32>(found.page[p]);
      // Of the row that this lane has looked up, in chunks.
      const u32 own =
          page < static_cast<u32>(pages.pages) ? page * rows.page_chunks + token * rows.row_chunks : nowhere;
      constexpr u32 place_groups = warp_size / group_rows * loaders;  // that all lanes have looked up in a place
      const u32 end = (p + 1) * place_groups < groups ? (p + 1) * place_groups : groups;
      u32 source = lane / row_lanes;
#pragma unroll 1
      for (; group < end; group += loaders) {
        const u32 offset = static_cast<u32>(shuffle_from(static_cast<int>(own), source));
        const char* const from = head + static_cast<u64>(offset) * chunk_bytes;
#pragma unroll
        for (int c = 0; c < KVTile::count; ++c) {
          const bool exists = offset != nowhere && c * KVTile::width < left;
          cp_async(to + c * KVTile::panel_bytes, from + c * KVTile::row_bytes, exists);
        }
        to = (to ^ step_rows % 8 * chunk_bytes) + step_rows * KVTile::row_bytes;
        source += group_rows;
      }
    }
    cp_async_commit();
    if (pending != 0) {
      cp_async_wait<1>();
      announce();
    }
    pending = ring.full();
    ring.next();
  }

  // Waits for what is under way, and says that it is there.
  __device__ __forceinline__ void finish() {
    if (pending == 0) return;
    cp_async_wait<0>();
    announce();
    pending = 0;
  }

 private:
  // Of the block, that this lane looks up.
  __device__ __forceinline__ int row_of(u32 place, u32 lane) const {
    const u32 known = place * warp_size + lane;
    return static_cast<int>((loader + known / group_rows * loaders) * group_rows + known % group_rows);
  }

  __device__ __forceinline__ void announce() const {
    fence_for_copies();
    warp_barrier();  // lane 0 arrives for all
    if (lane_index() == 0) mbarrier_arrive(pending);
  }
};
