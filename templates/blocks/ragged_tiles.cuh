// The tiles of a ragged batch, which one thread finds for the whole block, and where tensor maps have them.
//
// A map of such a batch has the dimensions head_dim, seqlen, heads and, where others have the batch, all rows: with the
// stride of seqlen. seqlen has as many rows as the longest sequence, n, and the map's base lies n rows before the
// tensor. So row r of a sequence of c rows is at n - c + r of seqlen and, of all rows, at the one behind the sequence;
// what lies behind the sequence is outside the map: it is read as zeros, and not written.
#pragma once

#if variant::window
#include "blocks/first_block.cuh"
#endif
#include "blocks/mask.cuh"
#include "blocks/ring.cuh"
#include "blocks/sequence_rows.cuh"
#include "ptx/lanes.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "tensor_params.h"
#include "types.h"

struct QueryTile {
  int head;
  int first_row;  // of the sequence
  int blocks;     // of keys that it reads, at least one; 0: there is no further tile
#if variant::window
  int first_block;  // of them; `blocks` counts those before it too
#else
  static constexpr int first_block = 0;
#endif
  Rows queries;  // the sequence's
  Rows keys;
};

// Where a map has a sequence's first row, and its last coordinate.
struct Place {
  int row;
  int last;

  __device__ __forceinline__ Place(const Rows& rows, int seqlen)
      : row(seqlen - rows.count), last(rows.first + rows.count) {}
};

// Tiles in the order of TileOrder, without those that do not exist: blocks take them in rounds, back and forth. As the
// longest sequence of a group has the first and the last of its levels, causal tiles come longest first whatever the
// lengths are. The lengths are walked as the tiles go, by heads of one sequence at a time.
template <class KeyMask, bool causal, int B_r, int B_c>
struct RaggedOrder {
  const AttuneTensorPrefillParams& params;
  int round = 0;
  int group = 0;  // the first of its heads, of all sequences'
  int group_end = 0;
  int levels = 0;  // tiles of the group's longest sequence
  int level = 0;
  int head = 0;    // from here to the end of its sequence, or of the group, ...
  int passed = 0;  // ... behind so many tiles

  __device__ __forceinline__ explicit RaggedOrder(const AttuneTensorPrefillParams& params) : params(params) {}

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    const int blocks = static_cast<int>(grid_size().x);
    const int own = static_cast<int>(block_index().x);
    const int index = round * blocks + (round % 2 == 0 ? own : blocks - 1 - own);
    ++round;
    while (true) {
      if (head == group_end) {
        if (!next_level()) return false;
      }
      const int batch = head / params.heads_q;
      const int first_head = batch * params.heads_q;
      const int heads_end = first_head + params.heads_q < group_end ? first_head + params.heads_q : group_end;
      const Rows queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q);
      const int first_row = (causal ? levels - 1 - level : level) * B_r;
      if (first_row < queries.count) {
        if (index < passed + heads_end - head) {
          tile.head = head + (index - passed) - first_head;
          tile.first_row = first_row;
          tile.queries = queries;
          tile.keys = Rows(params.cu_seqlens_k, batch, params.total_k, params.seqlen_k);
          tile.keys.keep(params.seqused_k, batch);
          tile.blocks = blocks_of(params, tile, first_row + B_r - 1);
#if variant::window
          tile.first_block = first_block(mask_of(params, tile), first_row, tile.blocks, B_c);
#endif
          return true;
        }
        passed += heads_end - head;
      }
      head = heads_end;
    }
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

 private:
  // Goes to the next tile of the group's heads or, past the last, to the next group that has any.
  __device__ __forceinline__ bool next_level() {
    const int heads = params.batch * params.heads_q;
    ++level;
    while (level >= levels) {
      if (group_end == heads) return false;
      group = group_end;
      group_end = heads - group > params.group_heads ? group + params.group_heads : heads;
      levels = longest();
      level = 0;
    }
    head = group;
    return true;
  }

  // Tiles of the group's longest sequence.
  __device__ __forceinline__ int longest() const {
    int rows = 0;
    for (int batch = group / params.heads_q; batch * params.heads_q < group_end; ++batch) {
      const int count = Rows(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q).count;
      if (count > rows) rows = count;
    }
    return (rows + B_r - 1) / B_r;
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
