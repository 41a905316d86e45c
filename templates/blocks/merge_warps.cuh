// Warps that each saw some of the keys come to one result.
#pragma once

#include "blocks/merge.cuh"
#include "blocks/softmax.cuh"
#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Eight rows at a time, those of which four lanes each hold a part: where no more exist the others cost nothing. Shared
// memory has all warps' m and l of them, and their O or a slice of it.
template <int warps, int row_tiles, int columns>
struct WarpMerge {
  static constexpr int rows_at_once = 8;
  static constexpr int statistics_bytes = warps * rows_at_once * 8;
  static constexpr int slice = columns < 128 ? columns : 128;  // columns
  static constexpr int row_bytes = (slice + 31) / 32 * 128;
  static constexpr int bytes = statistics_bytes + warps * rows_at_once * row_bytes;
  static constexpr int row_chunks = slice / 4;  // of four columns: a thread's
  static constexpr int threads = warps * warp_size;

  u32 base;

  // Calls write(row, column, O, lse) for each four columns of the first `rows` rows: O normalised, LSE to base 2 and
  // -inf for a row that saw no key. All warps together.
  template <class Write>
  __device__ __forceinline__ void merge(OnlineSoftmax<row_tiles, variant::score>& softmax,
                                        const float (&O)[row_tiles][columns / 8][4], float scale_log2, int rows,
                                        const Write& write) const {
    const u32 lane = lane_index();
    const u32 lane_row = lane / 4;
    const u32 warp = warp_index();  // here, where lanes have not parted
#pragma unroll
    for (int piece = 0; piece < 2 * row_tiles; ++piece) {
      const int i = piece / 2;
      const int h = piece % 2;
      const int first_row = piece * rows_at_once;
      if (first_row >= rows) break;
      float sum = softmax.l[i][h];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
#pragma unroll
      for (int first_column = 0; first_column < columns; first_column += slice) {
        block_barrier();  // what these bytes held before has been read
        if (lane % 4 == 0) store_shared(statistics(warp, lane_row), softmax.m[i][h], sum);
#pragma unroll
        for (int d = 0; d < slice / 8; ++d) {
          const int tile = first_column / 8 + d;
          if (tile >= columns / 8) break;
          const u32 column = static_cast<u32>(d * 8) + lane % 4 * 2;
          store_shared(element(warp, lane_row, column), O[i][tile][2 * h], O[i][tile][2 * h + 1]);
        }
        block_barrier();
#pragma unroll
        for (int first = 0; first < rows_at_once * row_chunks; first += threads) {
          const int own = first + static_cast<int>(thread_index());
          const int row = own / row_chunks;
          const int column = own % row_chunks * 4;
          if (row >= rows_at_once || first_row + row >= rows) break;
          if (columns % slice != 0 && first_column + column >= columns) continue;
          float lse;
          const Float4 o = add_up(static_cast<u32>(row), static_cast<u32>(column), scale_log2, lse);
          write(first_row + row, first_column + column, o, lse);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ u32 statistics(u32 warp, u32 row) const { return base + (warp * rows_at_once + row) * 8; }

  // Four rows' 32 bytes are apart in the banks, so that a half-warp's stores do not meet.
  __device__ __forceinline__ u32 element(u32 warp, u32 row, u32 column) const {
    return base + statistics_bytes + (warp * rows_at_once + row) * row_bytes + (column * 4 ^ row % 4 * 32);
  }

  // Four normalised elements of O, and their row's LSE.
  __device__ __forceinline__ Float4 add_up(u32 row, u32 column, float scale_log2, float& lse) const {
    float m[warps];
    float largest = minus_infinity();
#pragma unroll
    for (u32 w = 0; w < warps; ++w) {
      m[w] = load_shared_float(statistics(w, row));
      largest = larger(largest, m[w]);
    }
    const float shift = merged_shift<variant::score>(largest, largest * scale_log2);
    float l = 0.0f;
    Float4 sum = {};
#pragma unroll
    for (u32 w = 0; w < warps; ++w) {
      const float weight = exp2_approx(m[w] * scale_log2 - shift);
      const float part_l = load_shared_float(statistics(w, row) + 4);
      merge_part(l, sum, weight, part_l, load_shared_floats(element(w, row, column)));
    }
    normalise(l, sum);
    lse = merged_lse(l, shift);
    return sum;
  }
};
