// Attention sinks: a logit of each head joins the softmax of each of its rows, as one more key whose value is 0. Who
// writes a row does it once, when everything else has been added up.
#pragma once

#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "ptx/math.cuh"
#include "ptx/memory_elements.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "ptx/unpack.cuh"
#include "types.h"

// The logit of a head. Kernels with sinks alone ask for it.
template <class KernelParams>
__device__ __forceinline__ float sink_of(const KernelParams& params, int head) {
  const AttuneExpressionParams& given = params.expressions;
  if (given.sink_like_q == 0) return load_global_float(static_cast<const float*>(given.sink) + head);
  return unpack_low<variant::dtype>(load_global_element(static_cast<const char*>(given.sink) + head * 2));
}

// Brings a finished row's LSE, to base 2, to that with the logit, and returns what O is to be multiplied by.
__device__ __forceinline__ float join_sink(float& lse, float logit) {
  const float sink = logit * 1.44269504f;  // log2 e
  const float top = larger(lse, sink);
  if (top == minus_infinity()) return 0.0f;
  const float keys = exp2_approx(lse - top);
  const float sum = keys + exp2_approx(sink - top);
  lse = top + log2_approx(sum);
  return keys / sum;
}

// The same of 16 rows, of which a lane holds two, with the factors that normalise them and natural-log LSE.
template <class KernelParams>
__device__ __forceinline__ void join_sinks(float (&inverse_l)[2], float (&lse)[2], const KernelParams& params,
                                           const ScoreRows& rows, int first_row) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + h * 8 + static_cast<int>(lane_index() / 4);
    float lse_base_2 = lse[h] * 1.44269504f;
    inverse_l[h] *= join_sink(lse_base_2, sink_of(params, rows.place(row, 0).h));
    lse[h] = lse_base_2 * 0.693147180559945f;  // ln 2
  }
}
