// Where the rows of one sequence lie in the tensors and in the workspace of the backward pass.
#pragma once

#include "backward_params.h"
#include "blocks/copy.cuh"
#include "blocks/sequence_rows.cuh"
#include "types.h"

template <bool ragged>
struct BackwardSequence {
  int batch;             // in tensors whose sequences lie apart
  SequenceRows queries;  // of its batch
  SequenceRows keys;
  int padded_row;  // of the workspace, its first

  __device__ __forceinline__ BackwardSequence(const AttuneBackwardParams& params, int sequence) {
    if constexpr (ragged) {
      batch = 0;
      queries = SequenceRows(params.cu_seqlens_q, sequence, params.total_q, params.seqlen_q);
      keys = SequenceRows(params.cu_seqlens_k, sequence, params.total_k, params.seqlen_k);
      queries.keep(params.seqused_q, sequence);
      keys.keep(params.seqused_k, sequence);
      padded_row = (queries.first / ATTUNE_BACKWARD_ROWS + sequence) * ATTUNE_BACKWARD_ROWS;
    } else {
      batch = sequence;
      queries.first = keys.first = 0;
      queries.count = params.seqlen_q;
      keys.count = params.seqlen_k;
      padded_row = sequence * params.padded_seqlen_q;
    }
  }

  // A head of Q, O, dO or dQ.
  __device__ __forceinline__ Matrix query_rows(const AttuneTensor& tensor, int head, int columns) const {
    return rows_of(tensor, head, queries, columns);
  }

  // A head of K, V, dK or dV.
  __device__ __forceinline__ Matrix key_rows(const AttuneTensor& tensor, int head, int columns) const {
    return rows_of(tensor, head, keys, columns);
  }

  // The row of all heads' rows in the workspace that a query of a head has.
  __device__ __forceinline__ i64 workspace_row(const AttuneBackwardParams& params, int head, int query) const {
    return static_cast<i64>(head) * params.padded_rows + padded_row + query;
  }

  // The place of a query in LSE and dLSE.
  __device__ __forceinline__ i64 lse_place(const AttuneBackwardParams& params, int head, int query) const {
    if constexpr (ragged) {
      return static_cast<i64>(head) * params.total_q + queries.first + query;
    } else {
      return (static_cast<i64>(batch) * params.heads_q + head) * params.seqlen_q + query;
    }
  }

 private:
  __device__ __forceinline__ Matrix rows_of(const AttuneTensor& tensor, int head, const SequenceRows& rows,
                                            int columns) const {
    Matrix matrix = head_of(tensor, batch, head, rows.count, columns);
    matrix.data += rows.first * matrix.stride_bytes;
    return matrix;
  }
};
