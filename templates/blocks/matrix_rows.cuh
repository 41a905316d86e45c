// Where the rows of a sequence's heads lie that threads copy themselves, and how many there are.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/lse_places.cuh"
#include "blocks/sequence_rows.cuh"
#include "params.h"
#include "types.h"

// Every sequence has as many rows.
struct DenseSequence {
  int batch;

  __device__ __forceinline__ DenseSequence(const AttunePrefillParams& /*params*/, int batch) : batch(batch) {}

  __device__ __forceinline__ int queries(const AttunePrefillParams& params) const { return params.seqlen_q; }
  __device__ __forceinline__ int keys(const AttunePrefillParams& params) const { return params.seqlen_k; }
  // A head of Q or O, ...
  __device__ __forceinline__ Matrix query_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                               int head) const {
    return head_of(tensor, batch, head, params.seqlen_q, params.head_dim);
  }
  // ... of K or V, ...
  __device__ __forceinline__ Matrix key_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                             int head) const {
    return head_of(tensor, batch, head, params.seqlen_k, key_columns<variant::cut_rows>(params));
  }
  // ... and where its LSE go.
  __device__ __forceinline__ LsePlaces lse(const AttunePrefillParams& params, int head) const {
    return {params.lse + (static_cast<i64>(batch) * params.heads_q + head) * params.seqlen_q, params.seqlen_q};
  }
};

// Sequences of any lengths lie one after the other, and only the device knows where. Keys in pages lie elsewhere
// (blocks/page_source.cuh).
struct RaggedSequence {
  int batch;
  SequenceRows own_queries;
  SequenceRows own_keys;

  __device__ __forceinline__ RaggedSequence(const AttunePrefillParams& params, int batch)
      : batch(batch), own_queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q) {
    own_queries.keep(params.seqused_q, batch);
    if constexpr (!variant::paged) {
      own_keys = SequenceRows(params.cu_seqlens_k, batch, params.total_k, params.seqlen_k);
      own_keys.keep(params.seqused_k, batch);
    }
  }

  __device__ __forceinline__ int queries(const AttunePrefillParams& /*params*/) const { return own_queries.count; }
  __device__ __forceinline__ int keys(const AttunePrefillParams& /*params*/) const { return own_keys.count; }
  __device__ __forceinline__ Matrix query_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                               int head) const {
    return head_rows(tensor, head, own_queries, params.head_dim);
  }
  __device__ __forceinline__ Matrix key_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                             int head) const {
    return head_rows(tensor, head, own_keys, key_columns<variant::cut_rows>(params));
  }
  __device__ __forceinline__ LsePlaces lse(const AttunePrefillParams& params, int head) const {
    return {params.lse + static_cast<i64>(head) * params.total_q + own_queries.first, own_queries.count};
  }

 private:
  __device__ __forceinline__ static Matrix head_rows(const AttuneTensor& tensor, int head, const SequenceRows& rows,
                                                     int columns) {
    Matrix matrix = head_of(tensor, 0, head, rows.count, columns);
    matrix.data += rows.first * matrix.stride_bytes;
    return matrix;
  }
};
