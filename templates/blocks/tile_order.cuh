// Which tiles a block computes that stays for many, one after the other.
#pragma once

#include "blocks/mask.cuh"
#include "ptx/thread.cuh"
#include "tensor_params.h"
#include "types.h"

struct QueryTile {
  int batch;
  int head;
  int first_query;
  int blocks;  // of keys that it reads, at least one
};

// Tiles are ordered by groups of heads whose keys and values share L2; inside a group the same tile of every head comes
// before the next, the longest first when causal. Blocks take them in rounds, every other round in reverse, so that who
// began with the longest tile ends with the shortest.
template <bool causal, int B_r, int B_c>
struct TileOrder {
  const AttuneTensorPrefillParams& params;
  int round = 0;

  // Finds this block's next tile; false when there is none left.
  __device__ __forceinline__ bool next(QueryTile& tile) {
    const AttunePrefillParams& problem = params.problem;
    const int heads = problem.batch * problem.heads_q;
    const int blocks = static_cast<int>(grid_size().x);
    const int own = static_cast<int>(block_index().x);
    const int index = round * blocks + (round % 2 == 0 ? own : blocks - 1 - own);
    ++round;
    if (index >= params.q_blocks * heads) return false;
    const int group = index / (params.group_heads * params.q_blocks);
    const int first_head = group * params.group_heads;
    const int left = heads - first_head;
    const int group_heads = left < params.group_heads ? left : params.group_heads;
    const int place = index - first_head * params.q_blocks;
    const int q_block = place / group_heads;
    const int head = first_head + place - q_block * group_heads;
    tile.batch = head / problem.heads_q;
    tile.head = head - tile.batch * problem.heads_q;
    tile.first_query = (causal ? params.q_blocks - 1 - q_block : q_block) * B_r;
    tile.blocks = blocks_of(tile.first_query + B_r - 1);
    return true;
  }

  // Blocks of keys up to the last one that query `row` sees.
  __device__ __forceinline__ int blocks_of(int row) const {
    const AttunePrefillParams& problem = params.problem;
    const Mask<causal> mask{problem.seqlen_k, problem.seqlen_k - problem.seqlen_q};
    const int blocks = blocks_reaching(mask.limit(row), B_c);
    return blocks > 0 ? blocks : 1;
  }
};
