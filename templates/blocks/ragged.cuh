// A ragged batch: sequences of any lengths lie one after the other, and only the device knows where.
#pragma once

#include "blocks/copy.cuh"
#include "params.h"
#include "ptx/memory_words.cuh"
#include "types.h"

// Rows of one sequence among those of all.
struct Rows {
  int first;
  int count;

  // Whatever the array says, they are among the `total` rows, and at most `most`.
  __device__ __forceinline__ Rows(const int* cu_seqlens, int batch, int total, int most) {
    first = clamped(load_global_int(cu_seqlens + batch), total);
    const int last = clamped(load_global_int(cu_seqlens + batch + 1), total);
    count = last > first ? last - first : 0;
    if (count > most) count = most;
  }

 private:
  // Before any difference is taken: that of two wild values would wrap.
  __device__ __forceinline__ static int clamped(int row, int total) {
    const int inside = row < total ? row : total;
    return inside > 0 ? inside : 0;
  }
};

struct Sequence {
  Rows queries;
#if variant::paged
  __device__ __forceinline__ Sequence(const AttunePrefillParams& params, int batch)
      : queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q) {}
#else
  Rows keys;

  __device__ __forceinline__ Sequence(const AttunePrefillParams& params, int batch)
      : queries(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q),
        keys(params.cu_seqlens_k, batch, params.total_k, params.seqlen_k) {
    if (params.seqused_k == nullptr) return;
    const int used = load_global_int(params.seqused_k + batch);
    if (used < keys.count) keys.count = used > 0 ? used : 0;
  }

  // A head of K or V.
  __device__ __forceinline__ Matrix key_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                             int head) const {
    return head_rows(params, tensor, head, keys);
  }
#endif

  // A head of Q or O.
  __device__ __forceinline__ Matrix query_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                               int head) const {
    return head_rows(params, tensor, head, queries);
  }

  // Where a head's LSE begin.
  __device__ __forceinline__ float* head_lse(const AttunePrefillParams& params, int head) const {
    return params.lse + static_cast<i64>(head) * params.total_q + queries.first;
  }

 private:
  __device__ __forceinline__ static Matrix head_rows(const AttunePrefillParams& params, const AttuneTensor& tensor,
                                                     int head, const Rows& rows) {
    Matrix matrix = head_of(tensor, 0, head, rows.count, params.head_dim);
    matrix.data += rows.first * matrix.stride_bytes;
    return matrix;
  }
};
