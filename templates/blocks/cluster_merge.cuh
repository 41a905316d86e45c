// The parts of a sequence, each computed by one block of a cluster, come to one result: every block leaves its rows in
// its own shared memory, and behind a barrier each merges some of them, as combine.cu does.
#pragma once

#include "blocks/merge.cuh"
#include "ptx/cluster.cuh"
#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// `rows` rows of `columns` of O, normalised, and the LSE of each, to base 2.
template <int threads, int rows, int columns>
struct ClusterMerge {
  static constexpr int most_blocks = 8;           // of a cluster, wherever it runs
  static constexpr int row_chunks = columns / 4;  // of four columns: a thread's
  static constexpr int bytes = rows * (columns + 1) * 4;

  u32 base;  // shared address, 16-byte aligned, the same in all blocks

  __device__ __forceinline__ void leave(int row, int column, const Float4& o, float row_lse) const {
    store_shared(element(row, column), o);
    if (column == 0) store_shared(lse(row), row_lse);
  }

  // Of a part without keys.
  __device__ __forceinline__ void leave_nothing(int count) const {
#pragma unroll 1
    for (int i = static_cast<int>(thread_index()); i < count * row_chunks; i += threads) {
      leave(i / row_chunks, i % row_chunks * 4, Float4{}, minus_infinity());
    }
  }

  // Calls write(row, column, O, lse) for each four of the first `head_dim` columns of the first `count` rows, in one
  // block or another. All threads of the cluster together, each once behind what it leaves; no block ends before what
  // the others have read there was used.
  template <class Write>
  __device__ __forceinline__ void merge(int count, int head_dim, const Write& write) const {
    cluster_barrier();
    const u32 blocks = cluster_blocks();
    for (u32 i = (warp_index() * blocks + cluster_block()) * warp_size + lane_index();
         i < static_cast<u32>(count * row_chunks); i += threads * blocks) {
      const int row = static_cast<int>(i / row_chunks);
      const int column = static_cast<int>(i % row_chunks) * 4;
      if (column >= head_dim) continue;
      Float4 part_O[most_blocks];
      float part_lse[most_blocks];
      float largest = minus_infinity();
#pragma unroll
      for (u32 b = 0; b < most_blocks; ++b) {  // again of the first where no more exist, rather than branch
        const u32 from = b < blocks ? b : 0;
        part_O[b] = load_cluster_floats(element(row, column), from);
        part_lse[b] = load_cluster_float(lse(row), from);
        largest = larger(largest, part_lse[b]);
      }
      const float shift = merged_shift(largest, largest);
      float l = 0.0f;
      Float4 sum = {};
#pragma unroll
      for (u32 b = 0; b < most_blocks; ++b) {
        const float weight = b < blocks ? exp2_approx(part_lse[b] - shift) : 0.0f;
        merge_part(l, sum, weight, 1.0f, part_O[b]);
      }
      normalise(l, sum);
      write(row, column, sum, merged_lse(l, shift));
    }
    cluster_end();
  }

 private:
  __device__ __forceinline__ u32 element(int row, int column) const {
    return base + static_cast<u32>(row * columns + column) * 4;
  }
  __device__ __forceinline__ u32 lse(int row) const { return base + static_cast<u32>(rows * columns + row) * 4; }
};
