// Warps that each saw some of the keys come to one result.
#pragma once

#include "blocks/softmax.cuh"
#include "ptx/floats.cuh"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/reciprocal.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Shared memory for it: m and l of each warp's rows, and 32 columns of its O.
template <int warps, int row_tiles>
struct WarpMerge {
  static constexpr int rows = row_tiles * 16;
  static constexpr int slice = 32;
  static constexpr int lanes = slice / 4;  // threads that share a row of a slice
  static constexpr int own_rows = (rows * lanes + warps * warp_size - 1) / (warps * warp_size);  // of a thread
  static constexpr int row_bytes = (slice + 8) * 4;  // lanes of a half-warp store to different banks
  static constexpr int statistics_bytes = warps * rows * 8;
  static constexpr int bytes = statistics_bytes + warps * rows * row_bytes;

  u32 base;

  // O becomes this warp's share of the block's normalised O; the LSE (base 2) of this lane's rows is returned, -inf for
  // one that saw no key. All warps together.
  template <int columns>
  __device__ __forceinline__ void normalise(OnlineSoftmax<row_tiles>& softmax, float (&O)[row_tiles][columns][4],
                                            float scale_log2, float (&lse)[row_tiles][2]) const {
    const u32 lane = lane_index();
    const u32 warp = warp_index();
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& sum = softmax.l[i][h];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (lane % 4 == 0) store_shared(statistics(warp, i * 16 + h * 8 + lane / 4), softmax.m[i][h], sum);
      }
    }
    block_barrier();
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 row = i * 16 + h * 8 + lane / 4;
        float m = minus_infinity();
#pragma unroll
        for (u32 w = 0; w < warps; ++w) m = larger(m, load_shared_float(statistics(w, row)));
        const float shift = m == minus_infinity() ? 0.0f : m * scale_log2;
        float l = 0.0f;
#pragma unroll
        for (u32 w = 0; w < warps; ++w) {
          const u32 address = statistics(w, row);
          l += load_shared_float(address + 4) * exp2_approx(load_shared_float(address) * scale_log2 - shift);
        }
        const bool empty = l == 0.0f;
        lse[i][h] = empty ? minus_infinity() : shift + log2_approx(l);
        const float factor = empty ? 0.0f : exp2_approx(softmax.m[i][h] * scale_log2 - shift) * reciprocal_approx(l);
#pragma unroll
        for (int d = 0; d < columns; ++d) {
          O[i][d][2 * h] *= factor;
          O[i][d][2 * h + 1] *= factor;
        }
      }
    }
  }

  // The row of the block that is a thread's `k`-th in add_up().
  __device__ __forceinline__ static int own_row(int k) {
    return static_cast<int>(thread_index()) / lanes + k * (warps * warp_size / lanes);
  }

  // Adds up the shares and calls write(k, column, sum of four columns) for each four columns of this thread's rows.
  template <int columns, class Write>
  __device__ __forceinline__ void add_up(const float (&O)[row_tiles][columns][4], const Write& write) const {
    const u32 lane = lane_index();
    const u32 own_column = thread_index() % lanes * 4;
    const u32 own_share = share(warp_index(), lane / 4) + lane % 4 * 8;
#pragma unroll
    for (int first = 0; first < columns * 8; first += slice) {
      block_barrier();  // the slice before has been read
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int d = 0; d < slice / 8; ++d) {
          if (first / 8 + d >= columns) break;
          const float(&o)[4] = O[i][first / 8 + d];
          store_shared(own_share + (i * 16 * row_bytes + d * 32), o[0], o[1]);
          store_shared(own_share + ((i * 16 + 8) * row_bytes + d * 32), o[2], o[3]);
        }
      }
      block_barrier();
#pragma unroll
      for (int k = 0; k < own_rows; ++k) {
        const int row = own_row(k);
        if (row >= rows || first + static_cast<int>(own_column) >= columns * 8) break;
        Float4 sum = {};
#pragma unroll
        for (u32 w = 0; w < warps; ++w) {
          const Float4 more = load_shared_floats(share(w, static_cast<u32>(row)) + own_column * 4);
#pragma unroll
          for (int e = 0; e < 4; ++e) sum.value[e] += more.value[e];
        }
        write(k, first + static_cast<int>(own_column), sum);
      }
    }
  }

 private:
  __device__ __forceinline__ u32 statistics(u32 warp, u32 row) const { return base + (warp * rows + row) * 8; }
  __device__ __forceinline__ u32 share(u32 warp, u32 row) const {
    return base + statistics_bytes + (warp * rows + row) * row_bytes;
  }
};
