// The tiles of a ragged batch, which one thread finds for the whole block, and where tensor maps have them.
//
// A map of such a batch has the dimensions head_dim, seqlen, heads, all rows, which have the stride s of seqlen, and
// one that takes back. Along seqlen every sequence ends at n = 2^30: row r of a sequence of c rows is at n - c + r of
// it and, of all rows, at the one behind the sequence. That is n rows too far. The last dimension has the stride 2^34 -
// s, of which n are 2^64 - n * s: addresses wrap around, n rows back. What lies behind the sequence is outside the map:
// it is read as zeros, and not written.
//
// A base n rows before the tensor would do without that dimension, but where a box lies wholly outside, as a panel
// beyond head_dim does or the keys of a sequence that has none, the copy engine reads at the map's base all the same:
// there has to be memory (seen on H100 and H200).
#pragma once

#if variant::window
#include "blocks/window.cuh"
#endif
#include "blocks/mask.cuh"
#include "blocks/sequence_rows.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/lanes.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "sequence_end.h"
#include "tensor_params.h"
#include "types.h"

// Where a map has a sequence's first row, along seqlen and along all rows.
struct Place {
  int row;
  int last;

  __device__ __forceinline__ explicit Place(const Rows& rows)
      : row(ATTUNE_SEQUENCE_END - rows.count), last(rows.first + rows.count) {}
};

// The tiles that exist among those of a batch whose sequences are all as long as the longest, in its order. That costs
// a look at the lengths for each of the others, but no search: one would take as long as a tile of a short sequence.
template <class KeyMask, auto heads_of, bool causal, int B_r, int B_c>
struct RaggedOrder {
  const AttuneTensorPrefillParams& params;
  TileOrder<KeyMask, heads_of, causal, B_r, B_c> longest;

  template <class KernelParams>
  __device__ __forceinline__ explicit RaggedOrder(const KernelParams& params) : params(params), longest(params) {}

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    while (longest.next(tile)) {
      tile.queries = Rows(params.cu_seqlens_q, tile.batch, params.total_q, params.seqlen_q);
      tile.keys = Rows(params.cu_seqlens_k, tile.batch, params.total_k, params.seqlen_k);
      tile.queries.keep(params.seqused_q, tile.batch);
      tile.keys.keep(params.seqused_k, tile.batch);
      if (tile.first_row >= tile.queries.count) continue;
      tile.blocks = blocks_of(params, tile, tile.first_row + B_r - 1);
#if variant::window
      tile.first_block = mask_of(params, tile).first_block(tile.first_row, B_c);
#endif
      return true;
    }
    return false;
  }

  __device__ __forceinline__ static KeyMask mask_of(const AttuneTensorPrefillParams& params, const QueryTile& tile) {
#if variant::window
    return {tile.keys.count, tile.keys.count - tile.queries.count, params.window_left, params.window_right};
#else
    return {tile.keys.count, tile.keys.count - tile.queries.count};
#endif
  }

  // Blocks of keys up to the last one that the query of `row` sees.
  __device__ __forceinline__ static int blocks_of(const AttuneTensorPrefillParams& params, const QueryTile& tile,
                                                  int row) {
    const int blocks = blocks_reaching(mask_of(params, tile).limit(row), B_c);
    return blocks > 0 ? blocks : 1;
  }
};

// How the thread that loads Q tells the others which tile it is of: in a slot beside each of Q's stages.
struct TileSlots {
  static constexpr u32 slot_bytes = 2 * chunk_bytes;

  u32 base;  // shared address, 16-byte aligned

  __device__ __forceinline__ void write(u32 stage, const QueryTile& tile) const {
    const auto word = [](int value) { return static_cast<u32>(value); };
    const u32 slot = base + stage * slot_bytes;
    store_shared(slot, Chunk{{word(tile.blocks), word(tile.head), word(tile.first_row), word(tile.queries.first)}});
    store_shared(slot + chunk_bytes,
                 Chunk{{word(tile.queries.count), word(tile.keys.count), word(tile.first_block), 0}});
  }

  // What a consumer reads of it: all but where the keys begin.
  __device__ __forceinline__ QueryTile read(u32 stage) const {
    const u32 slot = base + stage * slot_bytes;
    const Chunk first = load_shared(slot);
    const Chunk second = load_shared(slot + chunk_bytes);
    warp_barrier();  // lane 0 releases the stage, and the slot with it, for all
    const auto number = [](u32 word) { return uniform(static_cast<int>(word)); };
    QueryTile tile{};
    tile.blocks = number(first.word[0]);
    tile.head = number(first.word[1]);
    tile.first_row = number(first.word[2]);
    tile.queries.first = number(first.word[3]);
    tile.queries.count = number(second.word[0]);
    tile.keys.count = number(second.word[1]);
#if variant::window
    tile.first_block = number(second.word[2]);
#endif
    return tile;
  }
};

// The producer's order, as consumers are told it: their next tile is the one that Q is of.
template <class Order, class QRing>
struct ToldOrder {
  const AttuneTensorPrefillParams& params;
  const QRing& q;
  TileSlots slots;
  QueryTile own{};

  __device__ __forceinline__ bool next(QueryTile& tile) {
    q.wait();
    const QueryTile told = slots.read(q.stage);
    if (told.blocks == 0) return false;
    tile = own = told;
    return true;
  }

  __device__ __forceinline__ auto mask() const { return Order::mask_of(params, own); }
  __device__ __forceinline__ int blocks_of(int row) const { return Order::blocks_of(params, own, row); }
};
