// The queries that share keys and values as rows of one matrix: row r is query r / ratio of the head r % ratio.
#pragma once

#include "blocks/sequence_rows.cuh"
#include "decode_params.h"
#include "ptx/memory.cuh"
#include "types.h"

// How many queries a sequence has where all have as many: each tile of rows holds some, and none is told
// apart.
struct DenseQueries {
  int count;

  __device__ __forceinline__ DenseQueries(const AttuneDecodeParams& params, int /*batch*/) : count(params.seqlen_q) {}

  __device__ __forceinline__ static int tile_of(const AttuneDecodeParams& /*params*/, int /*row*/) { return 0; }
  __device__ __forceinline__ bool reach(const AttuneDecodeParams& /*params*/, int /*tile*/) const { return true; }
};

struct DenseQueryRow {
  int batch;
  int head;
  int query;
  bool exists;

  __device__ __forceinline__ DenseQueryRow(const AttuneDecodeParams& params, int batch, int kv_head, int row)
      : batch(batch),
        query(params.seqlen_q == 1 ? 0 : row / params.gqa_ratio),
        exists(row < params.seqlen_q * params.gqa_ratio) {
    head = (kv_head - query) * params.gqa_ratio + row;
  }

  // Its elements in Q or O.
  __device__ __forceinline__ char* in(const AttuneTensor& tensor) const {
    return static_cast<char*>(tensor.data) +
           (static_cast<u32>(batch) * tensor.stride_batch + static_cast<u32>(query) * tensor.stride_seq +
            static_cast<u32>(head) * tensor.stride_head) *
               2;
  }

  // Writes its LSE, given in base 2, where the caller wants it.
  __device__ __forceinline__ void store_lse(const AttuneDecodeParams& params, float lse_base_2) const {
    if (params.lse == nullptr) return;
    constexpr float ln_2 = 0.693147180559945f;
    const i64 heads = static_cast<i64>(batch) * params.heads_kv * params.gqa_ratio + head;
    store_global(params.lse + heads * params.seqlen_q + query, lse_base_2 * ln_2);
  }
};

// A sequence's queries among those of a ragged batch, in which only the device knows where they are; none beyond it,
// and none where they are more than a kernel of few queries takes.
struct RaggedQueries {
  int first;
  int count;

  __device__ __forceinline__ RaggedQueries(const AttuneDecodeParams& params, int batch) : first(0), count(0) {
    if (batch >= params.batch) return;
    SequenceRows rows(params.cu_seqlens_q, batch, params.total_q, params.longest_q);
    rows.keep(params.seqused_q, batch);
    first = rows.first;
    count = rows.count <= params.seqlen_q ? rows.count : 0;
  }

  // Where the tile of a row begins, and whether it holds any of these queries: else it need not see their keys.
  __device__ __forceinline__ static int tile_of(const AttuneDecodeParams& params, int row) {
    return row / params.tile_rows * params.tile_rows;
  }
  __device__ __forceinline__ bool reach(const AttuneDecodeParams& params, int tile) const {
    return tile < count * params.gqa_ratio;
  }
};

struct RaggedQueryRow {
  int place;  // among the queries of all sequences
  int head;
  int query;
  bool exists;

  __device__ __forceinline__ RaggedQueryRow(const AttuneDecodeParams& params, int batch, int kv_head, int row)
      : query(row / params.gqa_ratio) {
    const RaggedQueries queries(params, batch);
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

using Queries = Select<variant::ragged, RaggedQueries, DenseQueries>;
using QueryRow = Select<variant::ragged, RaggedQueryRow, DenseQueryRow>;
