// Bringing blocks of queries, what is known of them and the gradients of their outputs into shared memory ahead of
// their use.
#pragma once

#include "backward_params.h"
#include "blocks/copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// A block of queries of one head.
template <class QTile>
struct QueryBlock {
  QTile Q;
  QTile dO;
  u32 statistics;  // LSE in base 2 and D of each row
};

// Of `heads` heads one after the other, blocks end_block - 1 down to first_block each. `stages` of them have a place.
// Every thread makes the same number of copy groups, so that waiting by count works.
template <class QTile, class Sequence, int threads, int stages>
struct QueryPipeline {
  using Copy = TileCopy<QTile, threads, true>;
  static constexpr u32 statistics_bytes = QTile::rows * 2 * sizeof(float);
  static constexpr u32 block_bytes = 2 * QTile::bytes + statistics_bytes;

  const AttuneBackwardParams& params;
  const Sequence& sequence;
  u32 base;
  int first_block;
  int end_block;
  int head;   // of the next block to request
  int block;  // likewise
  int left;   // blocks to request
  u32 used = 0;

  __device__ __forceinline__ QueryPipeline(const AttuneBackwardParams& params, const Sequence& sequence, u32 base,
                                           int first_head, int heads, int first_block, int end_block)
      : params(params),
        sequence(sequence),
        base(base),
        first_block(first_block),
        end_block(end_block),
        head(first_head),
        block(end_block - 1),
        left(end_block > first_block ? heads * (end_block - first_block) : 0) {}

  // After what the loop needs besides was requested, which the first wait covers too, and end() where there is none.
  __device__ __forceinline__ void begin() {
#pragma unroll
    for (u32 s = 1; s < stages; ++s) request(s - 1);
    if constexpr (stages == 1) cp_async_commit();
  }

  // Until the next block is there and seen by all threads.
  __device__ __forceinline__ QueryBlock<QTile> wait() {
    if constexpr (stages == 1) {
      block_barrier();  // every thread is done with the block before, which has the same place
      request(0);
      cp_async_wait<0>();
      block_barrier();
    } else {
      cp_async_wait<stages - 2>();
      block_barrier();  // also: every thread is done with the block before, whose place comes next
      request(used + (stages - 1));
    }
    return at(used++);
  }

  // Before shared memory gets another use: no thread has a copy under way.
  __device__ __forceinline__ void end() const {
    cp_async_wait<0>();
    block_barrier();
  }

 private:
  __device__ __forceinline__ QueryBlock<QTile> at(u32 number) const {
    const u32 place = base + number % stages * block_bytes;
    return {QTile{place}, QTile{place + QTile::bytes}, place + 2 * QTile::bytes};
  }

  // The next block, if there is one, which is used as one of this number; a group of copies in any case.
  __device__ __forceinline__ void request(u32 number) {
    if constexpr (variant::mask) skip_hidden();
    if (left > 0) {
      --left;
      const QueryBlock<QTile> to = at(number);
      const int first_query = block * QTile::rows;
      const Copy Q(sequence.query_rows(params.q, head, params.head_dim), first_query);
      const Copy dO(sequence.query_rows(params.dout, head, params.head_dim_v), first_query);
      Q.template copy<false>(to.Q);
      dO.template copy<false>(to.dO);
      copy_statistics(to.statistics, first_query);
      if (--block < first_block) {
        block = end_block - 1;
        ++head;
      }
    }
    cp_async_commit();
  }

  // Those that a mask's expression hides are not requested (blocks/live_queries.cuh).
  __device__ __forceinline__ void skip_hidden() {
    while (left > 0 && !sequence.live.has(head, block)) {
      --left;
      if (--block < first_block) {
        block = end_block - 1;
        ++head;
      }
    }
  }

  // Rows that do not exist have statistics too.
  __device__ __forceinline__ void copy_statistics(u32 address, int first_query) const {
    const float* const from = params.statistics + 2 * sequence.workspace_row(params, head, first_query);
    for (u32 i = thread_index(); i < statistics_bytes / chunk_bytes; i += threads) {
      cp_async(address + i * chunk_bytes, from + i * (chunk_bytes / sizeof(float)), true);
    }
  }
};
