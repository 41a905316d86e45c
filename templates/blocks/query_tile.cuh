// The queries of a tile on their way to shared memory.
#pragma once

#include "blocks/query_rotation.cuh"
#include "blocks/query_rows.cuh"
#include "decode_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Calls copy(to, elements, query, column, exists) for this thread's chunks of the rows of `tile` from `first_row` on.
template <int threads, class Tile, class Copy>
__device__ __forceinline__ void each_query_chunk(const Tile& tile, const AttuneDecodeParams& params, int batch,
                                                 int kv_head, int first_row, const Copy& copy) {
#pragma unroll
  for (int first = 0; first < Tile::rows * Tile::chunks; first += threads) {
    const int own = first + static_cast<int>(thread_index());
    if (Tile::rows * Tile::chunks % threads != 0 && own >= Tile::rows * Tile::chunks) break;
    const int row = own / Tile::chunks;
    const int column_chunk = own % Tile::chunks;
    const QueryRow query(params, batch, kv_head, first_row + row);
    const char* elements = query.in(params.q) + column_chunk * chunk_bytes;
    const bool exists = query.exists && column_chunk * chunk < params.head_dim;
    copy(tile.at(static_cast<u32>(row), static_cast<u32>(column_chunk)), elements, query.query, column_chunk * chunk,
         exists);
  }
}

// Asks for the rows of `tile` from `first_row` on; those that do not exist become zeros. They have come after a wait
// for this thread's copies and a barrier. All threads of the block together.
template <int threads, class Tile>
__device__ __forceinline__ void fetch_queries(const Tile& tile, const AttuneDecodeParams& params, int batch,
                                              int kv_head, int first_row) {
  if constexpr (variant::rotary == Rotary::none) {
    each_query_chunk<threads>(
        tile, params, batch, kv_head, first_row,
        [&](u32 to, const char* elements, int, int, bool exists) { cp_async(to, elements, exists); });
  } else {
    const QueryRotation rotation(params, batch);
    each_query_chunk<threads>(tile, params, batch, kv_head, first_row,
                              [&](u32 to, const char* elements, int query, int column, bool exists) {
                                Chunk words = {};
                                if (exists) {
                                  words = load_global(elements);
                                  rotation.turn(words, elements, query, column);
                                }
                                store_shared(to, words);
                              });
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
