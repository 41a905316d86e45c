// The queries of a tile on their way to shared memory.
#pragma once

#if variant::rotary != Rotary::none
#include "blocks/query_rotation.cuh"
#endif
#include "decode_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Asks for the rows of `tile` from `first_row` on; those that do not exist become zeros. They have come behind a wait
// for this thread's copies and a barrier. All threads of the block together.
template <int threads, class Tile>
__device__ __forceinline__ void fetch_queries(const Tile& tile, const AttuneDecodeParams& params, int batch,
                                              int kv_head, int first_row) {
#if variant::rotary != Rotary::none
  const QueryRotation rotation(params, batch);
#endif
#pragma unroll
  for (int first = 0; first < Tile::rows * Tile::chunks; first += threads) {
    const int own = first + static_cast<int>(thread_index());
    if (Tile::rows * Tile::chunks % threads != 0 && own >= Tile::rows * Tile::chunks) break;
    const int row = own / Tile::chunks;
    const int column_chunk = own % Tile::chunks;
    const QueryRow query(params, batch, kv_head, first_row + row);
    const char* elements = query.in(params.q) + column_chunk * chunk_bytes;
    const bool exists = query.exists && column_chunk * chunk < params.head_dim;
    const u32 to = tile.at(static_cast<u32>(row), static_cast<u32>(column_chunk));
#if variant::rotary != Rotary::none
    Chunk words = {};
    if (exists) {
      words = load_global(elements);
      rotation.turn(words, elements, query.query, column_chunk * chunk);
    }
    store_shared(to, words);
#else
    cp_async(to, elements, exists);
#endif
  }
  cp_async_commit();
}

// The tile as fragments of mma's first operand, for registers that hold them through a loop. By plain loads: behind an
// ldmatrix ptxas keeps a loop's stage in no uniform register, which costs it 5 to 8% (CUDA 13.0).
template <class Tile, int inner_tiles, int row_tiles>
__device__ __forceinline__ void load_queries(const Tile& tile, u32 (&fragment)[inner_tiles][row_tiles][4]) {
  const u32 lane = lane_index();
  const u32 first = tile.at(lane / 4, 0) + lane % 4 * 4;
#pragma unroll
  for (int t = 0; t < inner_tiles; ++t) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        fragment[t][i][w] = load_shared_word(tile.beyond(first, i * 16 + w % 2 * 8, t * 2 + w / 2));
      }
    }
  }
}
