// The rows and tiles of a ragged batch: where tensor maps have its sequences, and how one thread finds the tiles for
// the whole block.
//
// A map of such a batch has the dimensions head_dim, seqlen, heads, all rows, which have the stride s of seqlen, and
// one that takes back. Along seqlen every sequence ends at n = 2^30: row r of a sequence of c rows is at n - c + r of
// it and, of all rows, at the one after the sequence. That is n rows too far. The last dimension has the stride 2^34 -
// s, of which n are 2^64 - n * s: addresses wrap around, n rows back. What lies beyond the sequence is outside the map:
// it is read as zeros, and not written.
//
// A base n rows before the tensor would do without that dimension, but where a box lies wholly outside, as a panel
// beyond head_dim does or the keys of a sequence that has none, the copy engine reads at the map's base all the same:
// there has to be memory (seen on H100 and H200).
#pragma once

#include "blocks/box.cuh"
#include "blocks/mask.cuh"
#include "blocks/sequence_rows.cuh"
#include "blocks/tensor_rows.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/lanes.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"
#include "sequence_end.h"
#include "tensor_params.h"
#include "types.h"

// A tile, with where its sequence's rows are among those of all.
template <class SequenceTile>
struct RaggedTile : SequenceTile {
  SequenceRows queries;
  SequenceRows keys;
};

// Rows are the queries of one head of a sequence; verbs as in tensor_rows.cuh.
template <class QueryMask>
struct RaggedRows {
  using KeyMask = QueryMask;

  __device__ __forceinline__ static int heads(const AttuneTensorPrefillParams& params) { return params.heads_q; }
  template <class Tile>
  __device__ __forceinline__ static int kv_head(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return tile.head / (variant::gqa_ratio == 0 ? params.gqa_ratio : variant::gqa_ratio);
  }
  __device__ __forceinline__ static KeyMask mask_of_longest(const AttuneTensorPrefillParams& params) {
    return KeyMask::of(params, params.seqlen_q, params.seqlen_k);
  }
  template <class Tile>
  __device__ __forceinline__ static KeyMask mask(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return KeyMask::of(params, tile.queries.count, tile.keys.count);
  }
  template <class Tile>
  __device__ __forceinline__ static SequenceBox queries(const Tile& tile, int row) {
    return box(tile.queries, tile.head, row);
  }
  template <class Tile>
  __device__ __forceinline__ static SequenceBox keys(const Tile& tile, int kv_head, int key) {
    return box(tile.keys, kv_head, key);
  }
  template <class Tile>
  __device__ __forceinline__ static LsePlaces lse(const AttuneTensorPrefillParams& params, const Tile& tile) {
    return {params.lse + static_cast<i64>(tile.head) * params.total_q + tile.queries.first, tile.queries.count};
  }

 private:
  // That of a sequence's row, along seqlen and along all rows.
  __device__ __forceinline__ static SequenceBox box(const SequenceRows& sequence, int head, int row) {
    return {ATTUNE_SEQUENCE_END - sequence.count + row, head, sequence.first + sequence.count};
  }
};

// The tiles that exist among those of a batch whose sequences are all as long as the longest, in its order. That costs
// a look at the lengths for each of the others, but no search: one would take as long as a tile of a short sequence.
template <class TileRows, class LongestOrder, int B_r, int B_c>
struct RaggedOrder {
  const AttuneTensorPrefillParams& params;
  LongestOrder longest;

  template <class KernelParams>
  __device__ __forceinline__ explicit RaggedOrder(const KernelParams& params) : params(params), longest(params) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    while (longest.next(tile)) {
      tile.queries = SequenceRows(params.cu_seqlens_q, tile.batch, params.total_q, params.seqlen_q);
      tile.keys = SequenceRows(params.cu_seqlens_k, tile.batch, params.total_k, params.seqlen_k);
      tile.queries.keep(params.seqused_q, tile.batch);
      tile.keys.keep(params.seqused_k, tile.batch);
      if (tile.first_row >= tile.queries.count) continue;
      find_blocks<B_r, B_c>(TileRows::mask(params, tile), tile);
      return true;
    }
    return false;
  }
};

// How the thread that loads Q tells the others which tile it is of: in a slot beside each of Q's stages.
struct TileSlots {
  static constexpr u32 slot_bytes = 2 * chunk_bytes;

  u32 base;  // shared address, 16-byte aligned

  template <class Tile>
  __device__ __forceinline__ void write(u32 stage, const Tile& tile) const {
    const auto word = [](int value) { return static_cast<u32>(value); };
    const u32 slot = base + stage * slot_bytes;
    store_shared(slot, Chunk{{word(tile.blocks), word(tile.head), word(tile.first_row), word(tile.queries.first)}});
    if constexpr (variant::score || variant::mask) {
      store_shared(slot + chunk_bytes,
                   Chunk{{word(tile.queries.count), word(tile.keys.count), word(tile.first_block), word(tile.batch)}});
    } else {
      store_shared(slot + chunk_bytes,
                   Chunk{{word(tile.queries.count), word(tile.keys.count), word(tile.first_block), 0}});
    }
  }

  // What a consumer reads of it: all but where the keys begin.
  template <class Tile>
  __device__ __forceinline__ Tile read(u32 stage) const {
    const u32 slot = base + stage * slot_bytes;
    const Chunk first = load_shared(slot);
    const Chunk second = load_shared(slot + chunk_bytes);
    warp_barrier();  // lane 0 releases the stage, and the slot with it, for all
    const auto number = [](u32 word) { return uniform(static_cast<int>(word)); };
    Tile tile{};
    tile.blocks = number(first.word[0]);
    tile.head = number(first.word[1]);
    tile.first_row = number(first.word[2]);
    tile.queries.first = number(first.word[3]);
    tile.queries.count = number(second.word[0]);
    tile.keys.count = number(second.word[1]);
    if constexpr (variant::window || variant::mask) tile.first_block = number(second.word[2]);
    if constexpr (variant::score || variant::mask) tile.batch = number(second.word[3]);
    return tile;
  }
};

// A producer's order as consumers are told it: their next tile is the one that Q is of.
template <class QRing>
struct ToldOrder {
  const QRing& q;
  TileSlots slots;

  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    q.wait();
    const Tile told = slots.read<Tile>(q.stage);
    if (told.blocks == 0) return false;
    tile = told;
    return true;
  }
};
