// The order of a ragged batch's tiles, of which only the device knows how many there are.
#pragma once

#include "blocks/list_order.cuh"
#include "blocks/ragged_rows.cuh"
#include "blocks/sequence_rows.cuh"
#include "blocks/tile_order.cuh"
#include "ptx/grid.cuh"
#include "ptx/lanes.cuh"
#include "ptx/thread.cuh"
#include "tensor_params.h"
#include "tile_list.h"
#include "types.h"

// Where the rows of a sequence are.
using OwnRows = Select<variant::paged, PagedTile<QueryTile>, RaggedTile<QueryTile>>;

// RoundOrder of the tiles that exist, which all lanes of a warp find together: in a group of heads the last tiles of
// the longest sequence come first, for every head, and each run of blocks of queries before those in front of it. Tiles
// of a run are one head's, so that thread blocks side by side read the same keys. A lane knows how many tiles one
// sequence of the group has. So nobody looks at what does not exist: a tile costs a sum up to each lane and some over
// all, as many as the logarithm of the group's longest sequence's tiles, and a group a look at its lengths. A group has
// as many blocks of keys as group_heads of the longest sequence would have: short sequences are in one group, up to as
// many as there are lanes, or a batch of them would cost a look at each.
template <class Rows, int B_r, int B_c>
struct RaggedOrder {
  // Of causal tiles, which differ in length, the longest come first for all heads.
  static constexpr int run_tiles = variant::causal ? 1 : 4;

  const AttuneTensorPrefillParams& params;
  int round = 0;
  int first_tile = 0;  // of this group, among those of all
  int tiles;           // of this group
  int sequence = 0;    // its first, ...
  int head = 0;        // ... and of that the first head
  int group_heads;     // of all its sequences
  int own_heads;       // of this lane's sequence in the group; of a stacked one those that share no keys
  int own_tiles;       // of each of them

  __device__ __forceinline__ explicit RaggedOrder(const AttuneTensorPrefillParams& params) : params(params) {
    look_at_group();
  }

  // Finds this block's next tile, the same in all lanes; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    const int blocks = static_cast<int>(block_count());
    const int own = static_cast<int>(block_index().x);  // read anew, as this warp has few registers
    int place = round * blocks + (round % 2 == 0 ? own : blocks - 1 - own) - first_tile;  // in the group
    ++round;
    while (place >= tiles) {
      place -= tiles;
      if (!next_group()) return false;
    }
    // The run of blocks of queries: the last that with those behind it has more tiles than come before this one.
    int run = 0;
    for (int end = (greatest_of_lanes(own_tiles) + run_tiles - 1) / run_tiles; end - run > 1;) {
      const int middle = (run + end) / 2;
      if (tiles_from(middle * run_tiles) > place) {
        run = middle;
      } else {
        end = middle;
      }
    }
    place -= tiles_from((run + 1) * run_tiles);
    // The sequence: of those that have this run the last that has no more tiles before it.
    const int left = own_tiles - run * run_tiles;
    const int own_run = left < 0 ? 0 : left < run_tiles ? left : run_tiles;  // of each head
    const int up_to_own = sum_up_to_lane(own_heads * own_run);
    const int member = lanes_within(up_to_own, place);
    place -= sum_before(member, up_to_own);
    const int length = shuffle_from(own_run, static_cast<u32>(member));
    tile.batch = sequence + member;
    tile.first_row = (run * run_tiles + length - 1 - place % length) * B_r;
    tile.find_rows(params);
    tile.head = place / length * Rows::heads_of_tile(params, tile.queries.count) + (member == 0 ? head : 0);
    find_blocks<B_r, B_c>(Rows::mask(params, tile), tile);
    return true;
  }

 private:
  // How many tiles the group has that are not before this block of queries.
  __device__ __forceinline__ int tiles_from(int block) const {
    return sum_of_lanes(own_tiles > block ? own_heads * (own_tiles - block) : 0);
  }

  // What the lanes up to this one have together.
  __device__ __forceinline__ static int sum_up_to_lane(int own) {
    const u32 lane = lane_index();
#pragma unroll
    for (u32 step = 1; step < warp_size; step *= 2) {
      const int before = shuffle_from(own, (lane - step) % warp_size);
      if (lane >= step) own += before;
    }
    return own;
  }
  // Of such sums, how many are no greater than this.
  __device__ __forceinline__ static int lanes_within(int up_to_own, int most) {
    return sum_of_lanes(up_to_own <= most ? 1 : 0);
  }
  // And what the lanes before this one have.
  __device__ __forceinline__ static int sum_before(int lane, int up_to_own) {
    return lane == 0 ? 0 : shuffle_from(up_to_own, static_cast<u32>(lane - 1));
  }

  // What the group has of this lane's sequence: the first ones are whole, the next has some of its heads, if any. One
  // that is another kernel's has no tiles, and takes no time.
  __device__ __forceinline__ void look_at_group() {
    const int member = static_cast<int>(lane_index());
    int blocks = 1;
    int stack = 1;  // heads of a tile
    own_heads = own_tiles = 0;
    if (sequence + member < params.batch) {
      OwnRows rows{};
      rows.batch = sequence + member;
      rows.find_rows(params);
      own_heads = Rows::heads(params) - (member == 0 ? head : 0);
      if (rows.queries.count >= params.fewest_queries) {
        own_tiles = (rows.queries.count + B_r - 1) / B_r;
        stack = Rows::heads_of_tile(params, rows.queries.count);
        blocks = key_blocks(rows.keys.count);
      }
    }
    const int most_heads = warp_size * Rows::heads(params);  // more would be of more sequences than there are lanes
    const int room = (params.group_heads < most_heads ? params.group_heads : most_heads) * key_blocks(params.seqlen_k);
    const int up_to_own = sum_up_to_lane(own_heads * blocks);
    const int whole = lanes_within(up_to_own, room);
    int heads_left = (room - sum_before(whole, up_to_own)) / blocks;
    if (stack > 1) heads_left = whole == 0 ? own_heads : 0;  // a stacked one is not cut
    if (member == whole && own_heads > heads_left) own_heads = heads_left;
    if (member > whole) own_heads = 0;
    if (own_heads == 0) own_tiles = 0;
    group_heads = sum_of_lanes(own_heads);
    own_heads /= stack;
    tiles = tiles_from(0);
  }

  // Blocks of a head's keys; without any it takes time as if it had one.
  __device__ __forceinline__ static int key_blocks(int keys) { return keys > B_c ? (keys + B_c - 1) / B_c : 1; }

  // Goes on with the next group; false where this is the last.
  __device__ __forceinline__ bool next_group() {
    const int all = Rows::heads(params);
    const int next_head = head + group_heads;
    first_tile += tiles;
    sequence += next_head / all;
    head = next_head % all;
    if (sequence >= params.batch) return false;
    look_at_group();
    return true;
  }
};

// The tiles of a list that exist. Lists are for sequences that are all as long, so that most do.
template <class Rows, int B_r, int B_c>
struct ListedRaggedOrder {
  const AttuneTensorPrefillParams& params;
  ListOrder<Rows, B_r, B_c> list;

  __device__ __forceinline__ explicit ListedRaggedOrder(const AttuneListedPrefillParams& params)
      : params(params), list(params) {}

  // Finds this block's next tile; false when there is none left.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile) {
    while (list.next(tile)) {
      tile.find_rows(params);
      if (tile.first_row >= tile.queries.count) continue;
      find_blocks<B_r, B_c>(Rows::mask(params, tile), tile);
      return true;
    }
    return false;
  }
};
