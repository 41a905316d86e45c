// Which blocks of keys a mask leaves to tiles of rows, where what the mask looks up says so: before a kernel of
// attention, which then neither loads dead blocks nor looks at the mask in full ones.
//
// A block has a tile of rows and 32 blocks of keys, a word of each kind, of which each warp has its share. Of each
// look-up all lanes find the smallest and the largest value among the indices that the rows and keys have, and from
// these follows what the mask shows, as it does from the ranges of names. What is read is, for each tile, an element of
// each array for each key: for tiles of 128 rows 4 / 128 bytes of each score, from L2, where attention spends 4 *
// head_dim operations on it. More than `most_elements` indices at once are not looked at: of such a block nothing is
// known.
#include "mask_blocks_params.h"
#include "types.h"

namespace variant {
constexpr int warps = 8;
constexpr bool mask = false;
}  // namespace variant

#include "blocks/block_expressions.cuh"
#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "blocks/sequence_rows.cuh"
#include "ptx/grid.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;
constexpr int word_blocks = 32;
constexpr int warp_blocks = word_blocks / variant::warps;
static_assert(word_blocks % variant::warps == 0);

// How many rows a sequence has: all as many, or as arrays say.
__device__ __forceinline__ int rows_of(const int* cu_seqlens, const int* used, int batch, int total, int most) {
  SequenceRows rows{};
  rows.count = most;
  if (cu_seqlens != nullptr) rows = SequenceRows(cu_seqlens, batch, total, most);
  rows.keep(used, batch);
  return rows.count;
}

extern "C" __global__ void __launch_bounds__(threads)
    mask_blocks(const __grid_constant__ AttuneMaskBlocksParams params) {
  let_next_kernel_begin();  // it waits for this one's words
  const AttuneMaskBlocks& blocks = params.blocks;
  const int word_place = static_cast<int>(block_index().x);
  if (word_place == 0 && thread_index() == 0 && blocks.drawn != nullptr) store_global(blocks.drawn, 0, 0);
  const int word = word_place % blocks.tile_words;
  const int place = word_place / blocks.tile_words;
  const int tile = place % blocks.tiles;
  const int head = place / blocks.tiles % blocks.heads * params.ratio;
  const int batch = place / blocks.tiles / blocks.heads;
  const int queries = rows_of(params.cu_seqlens_q, params.seqused_q, batch, params.total_q, params.seqlen_q);
  const int keys = rows_of(params.cu_seqlens_k, params.seqused_k, batch, params.total_k, params.seqlen_k);
  const int first_row = tile * params.tile_rows;
  const int rows = minimum_of(params.tile_rows, queries * params.ratio - first_row);
  if (rows <= 0) return;
  const ScoreRows score_rows{batch, head, head / params.gqa_ratio, params.ratio, keys - queries, 0};
  const BlockExpressions expressions{params.expressions};
  const int own = score_rows.query(first_row + rows - 1) + keys - queries;  // the last row's position
  const int end = minimum_of(keys, own + params.window_right + 1);
  const u32 own_warp = warp_index();                                 // here, where lanes have not parted
  const int first_block = static_cast<int>(own_warp) * warp_blocks;  // of the word
  u32 live = 0;
  u32 full = 0;
  for (int i = first_block; i < first_block + warp_blocks; ++i) {
    const int key = (word * word_blocks + i) * params.block_keys;
    if (key >= end) break;
    const ScoreBox box = score_rows.box(first_row, rows, key, minimum_of(params.block_keys, keys - key));
    Truth seen = unknown();
    if constexpr (variant::mask) seen = expressions.shows(box);
    if (seen.maybe) live |= 1u << i;
    if (seen.surely) full |= 1u << i;
  }
  const u32 bits = shared_memory();
  if (lane_index() == 0) store_shared(bits + own_warp * chunk_bytes, Chunk{{live, full, 0, 0}});
  block_barrier();
  if (thread_index() != 0) return;
  for (u32 warp = 1; warp < variant::warps; ++warp) {
    const Chunk other = load_shared(bits + warp * chunk_bytes);
    live |= other.word[0];
    full |= other.word[1];
  }
  store_global(blocks.words + 2 * static_cast<i64>(word_place), live, full);
}
