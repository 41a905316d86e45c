// A ragged batch: sequences of any lengths lie one after the other, and only the device knows where.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/sequence_rows.cuh"
#include "params.h"
#include "types.h"

struct Sequence {
  Rows queries;
#if variant::paged
  __device__ __forceinline__ Sequence(const AttunePrefillParams& params, int batch)
      : queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q) {
    queries.keep(params.seqused_q, batch);
  }
#else
  Rows keys;

  __device__ __forceinline__ Sequence(const AttunePrefillParams& params, int batch)
      : queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q),
        keys(params.cu_seqlens_k, batch, params.total_k, params.seqlen_k) {
    queries.keep(params.seqused_q, batch);
    keys.keep(params.seqused_k, batch);
  }

  // A head of K or V.
  template <bool cut>
  __device__ __forceinline__ Matrix key_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                             int head) const {
    return head_rows(tensor, head, keys, key_columns<cut>(params));
  }
#endif

  // A head of Q or O.
  __device__ __forceinline__ Matrix query_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                               int head) const {
    return head_rows(tensor, head, queries, params.head_dim);
  }

  // Where a head's LSE begin.
  __device__ __forceinline__ float* head_lse(const AttunePrefillParams& params, int head) const {
    return params.lse + static_cast<i64>(head) * params.total_q + queries.first;
  }

 private:
  __device__ __forceinline__ static Matrix head_rows(const AttuneTensor& tensor, int head, const Rows& rows,
                                                     int columns) {
    Matrix matrix = head_of(tensor, 0, head, rows.count, columns);
    matrix.data += rows.first * matrix.stride_bytes;
    return matrix;
  }
};
