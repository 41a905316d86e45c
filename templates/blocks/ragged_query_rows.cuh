// In place of query_rows.cuh: sequences of any number of queries, one after the other, and only the device knows where.
#pragma once

#include "blocks/sequence_rows.cuh"
#include "decode_params.h"
#include "ptx/memory.cuh"
#include "types.h"

// A sequence's queries among those of all; none beyond the batch.
struct Queries {
  int first;
  int count;

  __device__ __forceinline__ Queries(const AttuneDecodeParams& params, int batch) : first(0), count(0) {
    if (batch >= params.batch) return;
    Rows rows(params.cu_seqlens_q, batch, params.total_q, params.seqlen_q);
    rows.keep(params.seqused_q, batch);
    first = rows.first;
    count = rows.count;
  }

  // Where the tile of a row begins, and whether it holds any of these queries: else it need not see their keys.
  __device__ __forceinline__ static int tile_of(const AttuneDecodeParams& params, int row) {
    return row / params.tile_rows * params.tile_rows;
  }
  __device__ __forceinline__ bool reach(const AttuneDecodeParams& params, int tile) const {
    return tile < count * params.gqa_ratio;
  }
};

struct QueryRow {
  int place;  // among the queries of all sequences
  int head;
  int query;
  bool exists;

  __device__ __forceinline__ QueryRow(const AttuneDecodeParams& params, int batch, int kv_head, int row)
      : query(row / params.gqa_ratio) {
    const Queries queries(params, batch);
    exists = query < queries.count;
    place = queries.first + query;
    head = (kv_head - query) * params.gqa_ratio + row;
  }

  __device__ __forceinline__ char* in(const AttuneTensor& tensor) const {
    return static_cast<char*>(tensor.data) + (place * tensor.stride_seq + head * tensor.stride_head) * 2;
  }

  __device__ __forceinline__ void store_lse(const AttuneDecodeParams& params, float lse_base_2) const {
    if (params.lse == nullptr) return;
    constexpr float ln_2 = 0.693147180559945f;
    store_global(params.lse + static_cast<i64>(head) * params.total_q + place, lse_base_2 * ln_2);
  }
};
