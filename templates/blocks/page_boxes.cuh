// Blocks of keys from pages whose sizes are multiples of 16, by the copy engine: a warp's lanes fetch a box each, which
// is rows of one page.
//
// The map of such a cache is that of a ragged batch (blocks/ragged_rows.cuh) in which a page is a sequence of as many
// rows as are keys: those behind a sequence's last key, whatever they hold, are outside of it and arrive as zeros, and
// so do boxes of pages that do not exist.
#pragma once

#include "blocks/box.cuh"
#include "blocks/page_table.cuh"
#include "paged_params.h"
#include "ptx/memory_words.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/thread.cuh"
#include "sequence_end.h"
#include "types.h"

template <int B_c>
struct PageBoxes {
  using Pages = int;  // that a lane has looked up; -1: none

  const AttunePages& pages;

  __device__ __forceinline__ explicit PageBoxes(const AttunePages& pages) : pages(pages) {}

  // Looks up this lane's page of a block of keys. Nothing waits for the table before load().
  template <class Tile>
  __device__ __forceinline__ Pages find(const Tile& tile, int block) const {
    const int key = block * B_c + first_row();
    if (block < 0 || first_row() >= B_c || key >= tile.keys.count) return -1;
    return load_global_int(table_of(pages, tile.batch) + entry_of(pages, key));
  }

  // The warp: waits for the ring's stage, and fetches a block of the head's keys or values.
  template <Cached operand, class Params, class Ring, class Tile>
  __device__ __forceinline__ void load(const Params& params, const Ring& ring, const Tile& tile, int kv_head, int block,
                                       Pages page) const {
    const int key = block * B_c + first_row();
    SequenceBox box{ATTUNE_SEQUENCE_END, kv_head, 0};
    if (static_cast<u32>(page) < static_cast<u32>(pages.pages)) {
      const int token = key - static_cast<int>(entry_of(pages, key)) * pages.page_size;
      const int left = tile.keys.count - key + token;
      const int count = left < pages.page_size ? left : pages.page_size;  // of the page's rows that are keys
      box.y += token - count;
      box.w = page * (operand == Cached::K ? pages.k_page_rows : pages.v_page_rows) + count;
    }
    ring.claim();
    if (elect_lane()) ring.announce();
    warp_barrier();  // or what follows is compiled as if lanes had parted
    if (first_row() < B_c)
      ring.tile().rows_from(first_row()).load(operand == Cached::K ? params.k : params.v, ring.full(), box);
  }

 private:
  __device__ __forceinline__ int first_row() const { return static_cast<int>(lane_index()) * pages.box_rows; }
};
