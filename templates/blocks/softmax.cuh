// Online softmax (arXiv 1805.02867) over the rows a warp owns, in base 2 with the scale folded into one FMA.
// Accumulators are in mma layout: a lane holds two rows (g and g + 8) of each 16-row tile, and the four lanes of
// a quad share a row.
#pragma once

#include "blocks/merged_shift.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Of `any_scores` some may be so low that the scale makes -inf of them.
template <int row_tiles, bool any_scores = false>
struct OnlineSoftmax {
  float m[row_tiles][2];  // running maximum of the raw scores; equal in a quad
  float l[row_tiles][2];  // running sum of exponentials, this lane's columns only

  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        m[i][h] = minus_infinity();
        l[i][h] = 0.0f;
      }
    }
  }

  // Takes in one block of scores: S becomes P = 2^(scale * (S - m)), and l and O are brought to the new maximum.
  template <Rescale rescale, int columns, int out_columns>
  __device__ __forceinline__ void update(float (&S)[row_tiles][columns][4], float (&O)[row_tiles][out_columns][4],
                                         float scale_log2, bool first) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      float correction[2];
      float shift[2];
      bool grew = false;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float before = m[i][h];
        float largest = before;
#pragma unroll
        for (int n = 0; n < columns; ++n) largest = larger(largest, larger(S[i][n][2 * h], S[i][n][2 * h + 1]));
        largest = larger(largest, shuffle_xor(largest, 1));
        largest = larger(largest, shuffle_xor(largest, 2));
        m[i][h] = largest;
        // A row that has seen no key yet keeps -inf; shifting by 0 then gives 2^-inf = 0 and no NaN.
        shift[h] = merged_shift<any_scores>(largest, largest * scale_log2);
        correction[h] = before;
        grew = grew || largest != before;
      }
      if (needs_rescale<rescale>(first, grew)) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          correction[h] = exp2_approx(correction[h] * scale_log2 - shift[h]);
          l[i][h] *= correction[h];
        }
#pragma unroll
        for (int d = 0; d < out_columns; ++d) {
#pragma unroll
          for (int e = 0; e < 4; ++e) O[i][d][e] *= correction[e / 2];
        }
      }
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          S[i][n][e] = exp2_approx(S[i][n][e] * scale_log2 - shift[e / 2]);
          l[i][e / 2] += S[i][n][e];
        }
      }
    }
  }

  // After the last block: 1 / l (0 for a row that saw no key) and the natural-log LSE of each row.
  __device__ __forceinline__ void finish(float (&inverse)[row_tiles][2], float (&lse)[row_tiles][2], float scale_log2) {
    constexpr float ln_2 = 0.693147180559945f;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = l[i][h];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const bool empty = sum == 0.0f;  // the largest score of a row adds 1; NaN stays NaN
        inverse[i][h] = empty ? 0.0f : 1.0f / sum;
        lse[i][h] = empty ? minus_infinity() : (m[i][h] * scale_log2 + log2_approx(sum)) * ln_2;
      }
    }
  }

 private:
  // Uniform over the warp, so that the branch around the multiplications does not diverge.
  template <Rescale rescale>
  __device__ __forceinline__ static bool needs_rescale(bool first, bool grew) {
    if constexpr (rescale == Rescale::always) return true;
    if constexpr (rescale == Rescale::skip_first) return !first;
    return any_lane(grew);
  }
};

// P as the A operand of the next product: two neighbouring accumulator tiles are, lane for lane, one fragment.
template <Dtype dtype, int row_tiles, int inner_tiles>
struct PackedP {
  u32 fragment[inner_tiles][row_tiles][4];

  __device__ __forceinline__ explicit PackedP(const float (&P)[row_tiles][2 * inner_tiles][4]) {
#pragma unroll
    for (int k = 0; k < inner_tiles; ++k) {
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float(&pair)[4] = P[i][2 * k + w / 2];
          fragment[k][i][w] = pack<dtype>(pair[w % 2 * 2], pair[w % 2 * 2 + 1]);
        }
      }
    }
  }

  __device__ __forceinline__ const u32 (&at(int inner, int i) const)[4] { return fragment[inner][i]; }
};
