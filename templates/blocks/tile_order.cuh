// Which tiles a block computes that stays for many, one after the other.
#pragma once

#if variant::window
#include "blocks/window.cuh"
#endif
#include "blocks/mask.cuh"
#if variant::ragged
#include "blocks/sequence_rows.cuh"
#endif
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "tensor_params.h"
#if variant::stream_k
#include "shared_tiles.h"
#endif
#if variant::tile_list
#include "tile_list.h"
#endif
#include "types.h"

struct QueryTile {
  int batch;
  int head;
  int first_row;
  int blocks;  // of keys that it reads, at least one
#if variant::stream_k
  int first_block;  // of them; it leaves those before it, which `blocks` counts too, to the next thread block
  bool begun;       // by the thread block before, which has read those behind them
#else
#if variant::window
  int first_block;  // of them; `blocks` counts those before it too
#else
  static constexpr int first_block = 0;
#endif
#endif
#if variant::ragged
  Rows queries;  // the sequence's
  Rows keys;
#endif
};

// Division by a number that stays: one multiplication, and a correction of at most one.
struct Divisor {
  u32 value;
  u32 inverse;  // 2^32 / value, rounded down

  __device__ __forceinline__ explicit Divisor(int divisor)
      : value(static_cast<u32>(divisor)), inverse(0xffffffffu / static_cast<u32>(divisor)) {}

  // n / value for n >= 0; `rest` becomes n % value.
  __device__ __forceinline__ int divide(int n, int& rest) const {
    const u32 quotient = multiply_high(static_cast<u32>(n), inverse);
    const u32 left = static_cast<u32>(n) - quotient * value;
    const bool more = left >= value;
    rest = static_cast<int>(more ? left - value : left);
    return static_cast<int>(more ? quotient + 1 : quotient);
  }
};

#if variant::stream_k
// Blocks take the tiles of one head after another in rounds. The keys of the last tiles, which would not fill a round,
// are shared out (Stream-K, arXiv 2301.03598): each block walks a run of them from its end. So a tile that two share is
// begun by the lower one before all else, and ended by the other last of all. heads_of() counts those of a sequence.
template <class KeyMask, auto heads_of, bool causal, int B_r, int B_c>
struct TileOrder {
  const AttuneSharedPrefillParams& params;
  Divisor head_tiles;
  Divisor sequence_heads;
  Divisor key_blocks;  // of a tile
  int place;           // of this block's next whole tile
  int run_begin;       // what is left of its run, in blocks of keys
  int run_end;

  __device__ __forceinline__ explicit TileOrder(const AttuneSharedPrefillParams& params)
      : params(params),
        head_tiles(params.q_blocks),
        sequence_heads(heads_of(params)),
        key_blocks(blocks_reaching(params.seqlen_k, B_c)),
        place(static_cast<int>(block_number())),
        run_begin(place * params.share + (place < params.longer_shares ? place : params.longer_shares)),
        run_end(run_begin + params.share + (place < params.longer_shares ? 1 : 0)) {}

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    const int all = static_cast<int>(key_blocks.value);
    int index = place;
    int begin = 0;  // of those of the tile's blocks of keys that are this block's, in the order in which they are read
    int end = all;
    if (index < params.whole_tiles) {
      place += static_cast<int>(block_count());
    } else {
      if (run_end == run_begin) return false;
      index = params.whole_tiles + key_blocks.divide(run_end - 1, end);
      ++end;
      begin = run_end - run_begin < end ? end - (run_end - run_begin) : 0;
      run_end -= end - begin;
    }
    tile.first_block = all - end;
    tile.blocks = all - begin;
    tile.begun = begin > 0;
    int q_block;
    tile.batch = sequence_heads.divide(head_tiles.divide(index, q_block), tile.head);
    tile.first_row = q_block * B_r;
    return true;
  }
};
#else
#if variant::tile_list
// The host says which tiles are this block's. heads_of() counts the heads of a sequence.
template <class KeyMask, auto heads_of, bool causal, int B_r, int B_c>
struct TileOrder {
  const AttuneListedPrefillParams& params;
  Divisor head_tiles;
  Divisor sequence_heads;
  int place;  // in the list

  __device__ __forceinline__ explicit TileOrder(const AttuneListedPrefillParams& params)
      : params(params),
        head_tiles(params.q_blocks),
        sequence_heads(heads_of(params)),
        place(params.list.first[block_number()]) {}

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    if (place >= params.list.first[block_number() + 1]) return false;
    int q_block;
    const int head = head_tiles.divide(params.list.tiles[place++], q_block);
    tile.batch = sequence_heads.divide(head, tile.head);
    tile.first_row = q_block * B_r;
    tile.blocks = blocks_of(tile.first_row + B_r - 1);
    return true;
  }
#else
// Tiles are ordered by groups of heads whose keys and values share L2; inside a group the same tile of every head comes
// before the next, the longest first when causal. Blocks take them in rounds, every other round in reverse, so that who
// began with the longest tile ends with the shortest. heads_of() counts the heads of a sequence.
template <class KeyMask, auto heads_of, bool causal, int B_r, int B_c>
struct TileOrder {
  const AttuneTensorPrefillParams& params;
  int heads;                 // of all sequences
  Divisor group_tiles;       // tiles of a whole group
  Divisor group_heads;       // heads of a whole group
  Divisor last_group_heads;  // and of the last
  Divisor sequence_heads;
  int round = 0;

  __device__ __forceinline__ explicit TileOrder(const AttuneTensorPrefillParams& params)
      : params(params),
        heads(params.batch * heads_of(params)),
        group_tiles(params.group_heads * params.q_blocks),
        group_heads(params.group_heads),
        last_group_heads((heads - 1) % params.group_heads + 1),
        sequence_heads(heads_of(params)) {}

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    const int blocks = static_cast<int>(block_count());
    const int own = static_cast<int>(block_number());
    const int index = round * blocks + (round % 2 == 0 ? own : blocks - 1 - own);
    ++round;
    if (index >= params.q_blocks * heads) return false;
    int place;
    const int first_head = group_tiles.divide(index, place) * params.group_heads;
    const bool last = first_head + params.group_heads > heads;
    int head;
    const int q_block = last ? last_group_heads.divide(place, head) : group_heads.divide(place, head);
    tile.batch = sequence_heads.divide(first_head + head, tile.head);
    tile.first_row = (causal ? params.q_blocks - 1 - q_block : q_block) * B_r;
    tile.blocks = blocks_of(tile.first_row + B_r - 1);
#if variant::window
    tile.first_block = mask().first_block(tile.first_row, B_c);
#endif
    return true;
  }
#endif

#if variant::window
  __device__ __forceinline__ KeyMask mask() const {
    return {params.seqlen_k, params.seqlen_k - params.seqlen_q, params.window_left, params.window_right};
  }
#endif

  // Blocks of keys up to the last one that the query of `row` sees.
  __device__ __forceinline__ int blocks_of(int row) const {
#if variant::window
    const int blocks = blocks_reaching(mask().limit(row), B_c);
#else
    const KeyMask mask{params.seqlen_k, params.seqlen_k - params.seqlen_q};
    const int blocks = blocks_reaching(mask.limit(row), B_c);
#endif
    return blocks > 0 ? blocks : 1;
  }
};
#endif
