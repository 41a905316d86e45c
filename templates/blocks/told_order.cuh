// Tiles that one warp finds for the whole block: it hands them to the thread that loads them, which tells the others
// with Q.
#pragma once

#include "blocks/expressions.cuh"
#include "ptx/lanes.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// A tile of a ragged batch, of one in pages, or of those that a mask leaves some blocks, in shared memory.
struct TileSlot {
  static constexpr u32 bytes = 3 * chunk_bytes;

  u32 base;  // shared address, 16-byte aligned

  template <class Tile>
  __device__ __forceinline__ void write(const Tile& tile) const {
    const auto word = [](int value) { return static_cast<u32>(value); };
    if constexpr (variant::ragged || variant::paged) {
      store_shared(base, Chunk{{word(tile.blocks), word(tile.head), word(tile.first_row), word(tile.queries.first)}});
      store_shared(base + chunk_bytes, Chunk{{word(tile.queries.count), word(tile.keys.count), word(tile.first_block),
                                              word(tile.keys.first)}});
    } else {
      store_shared(base, Chunk{{word(tile.blocks), word(tile.head), word(tile.first_row), word(tile.first_block)}});
    }
    if constexpr (Expressions::told) {
      store_shared(base + 2 * chunk_bytes, Chunk{{word(tile.batch), word(tile.word), tile.live, tile.full}});
    } else if constexpr (variant::dropout || variant::score || variant::mask || variant::paged) {
      store_shared(base + 2 * chunk_bytes, Chunk{{word(tile.batch), word(tile.left), word(tile.begun), 0}});
    }
  }

  template <class Tile>
  __device__ __forceinline__ Tile read() const {
    const Chunk first = load_shared(base);
    Tile tile{};
    tile.blocks = static_cast<int>(first.word[0]);
    tile.head = static_cast<int>(first.word[1]);
    tile.first_row = static_cast<int>(first.word[2]);
    if constexpr (variant::ragged || variant::paged) {
      const Chunk second = load_shared(base + chunk_bytes);
      tile.queries.first = static_cast<int>(first.word[3]);
      tile.queries.count = static_cast<int>(second.word[0]);
      tile.keys.count = static_cast<int>(second.word[1]);
      if constexpr (variant::window || variant::mask || variant::stream_k)
        tile.first_block = static_cast<int>(second.word[2]);
      tile.keys.first = static_cast<int>(second.word[3]);
    } else {
      tile.first_block = static_cast<int>(first.word[3]);
    }
    if constexpr (variant::dropout || variant::score || variant::mask || variant::paged) {
      const Chunk third = load_shared(base + 2 * chunk_bytes);
      tile.batch = static_cast<int>(third.word[0]);
      if constexpr (Expressions::told) {
        tile.word = static_cast<int>(third.word[1]);
        tile.live = third.word[2];
        tile.full = third.word[3];
      }
      if constexpr (variant::stream_k) {
        tile.left = third.word[1] != 0;
        tile.begun = third.word[2] != 0;
      }
    }
    return tile;
  }
};

// The warp that finds tiles: hands the next one over. One without blocks says that there is none left. All lanes wait:
// were it one alone, the others would go on as if they had parted, and each sum over the lanes take some microseconds.
template <class FoundRing, class Tile>
__device__ __forceinline__ void hand_over(FoundRing& found, const Tile& tile) {
  found.claim();
  if (elect_lane()) {
    found.tile().write(tile);
    found.announce(0);
  }
  found.next();
  warp_barrier();
}

// The order of the thread that loads them, ...
template <class FoundRing>
struct FoundOrder {
  FoundRing found;

  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    found.wait();
    tile = found.tile().template read<Tile>();
    mbarrier_arrive(found.empty());
    found.next();
    return tile.blocks != 0;
  }
};

// ... and that of the others: their next tile is the one that Q is of.
template <class QRing>
struct ToldOrder {
  const QRing& q;
  TileSlot told;

  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    q.wait();
    Tile next = told.read<Tile>();
    warp_barrier();  // lane 0 releases the stage, and the slot with it, for all
    next.blocks = uniform(next.blocks);
    next.head = uniform(next.head);
    next.first_row = uniform(next.first_row);
    if constexpr (variant::ragged || variant::paged) {
      next.queries.first = uniform(next.queries.first);
      next.queries.count = uniform(next.queries.count);
      next.keys.count = uniform(next.keys.count);
    }
    if constexpr (variant::window || variant::mask || variant::stream_k) next.first_block = uniform(next.first_block);
    if constexpr (variant::stream_k) {
      next.left = uniform(static_cast<int>(next.left)) != 0;
      next.begun = uniform(static_cast<int>(next.begun)) != 0;
    }
    if constexpr (variant::dropout || variant::score || variant::mask || variant::paged)
      next.batch = uniform(next.batch);
    if (next.blocks == 0) return false;
    tile = next;
    return true;
  }
};

// The order of a warp whose lanes load together.
template <class FoundRing>
struct WarpFoundOrder {
  FoundRing found;

  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    found.wait();
    tile = found.tile().template read<Tile>();
    warp_barrier();  // lane 0 releases the slot for all
    found.release();
    found.next();
    tile.blocks = uniform(tile.blocks);
    return tile.blocks != 0;
  }
};
