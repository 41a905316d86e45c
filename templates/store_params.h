// The parameter blocks of the kernels that write a cache of keys and values and that merge two results; plain C like
// params.h, and part of the same ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

// Writes new keys and values into a cache of pages as decode reads them (decode_params.h).
struct AttuneStoreParams {
  struct AttuneTensor k_new;  // batch x tokens x heads_kv x head_dim
  struct AttuneTensor v_new;  // likewise
  struct AttuneTensor k;      // pages x page_size x heads_kv x head_dim, written
  struct AttuneTensor v;      // likewise
  const long long* slots;     // batch x tokens: page * page_size + token of the page; outside the cache: not written.
                              // Null: token i of a sequence becomes its key seqlens_k + i
  const int* seqlens_k;       // batch: keys that each sequence has already; null: none
  const int* block_table;     // batch x table_width: pages of each sequence; null: sequence i has page i alone
  const int* positions;       // batch x tokens: where rotations are looked up; null: seqlens_k + i
  const void* cos;            // rotations x rotary_dim / 2, contiguous, of the kernel's dtype
  const void* sin;            // likewise
  int batch;
  int tokens;
  int heads_kv;
  int head_dim;
  int page_size;
  int pages;
  int table_width;  // 1 for a contiguous cache
  int rotary_dim;   // columns that are rotated, a multiple of 16
  int rotations;    // positions beyond them are not rotated
  int key_columns;  // kernels with cut_rows: columns of k and v, up to 7 fewer than head_dim, a multiple of 8. What is
                    // beyond them in memory is not written
};

// O = softmax over the keys of two results together, each normalised over its own.
struct AttuneMergeParams {
  struct AttuneTensor o1;  // batch x seqlen x heads x head_dim
  struct AttuneTensor o2;  // likewise
  struct AttuneTensor o;   // likewise, written; may be o1 or o2
  const float* lse1;       // batch x heads x seqlen, contiguous, natural log
  const float* lse2;       // likewise
  float* lse;              // likewise, written, apart from both; may be null
  int batch;
  int seqlen;
  int heads;
  int head_dim;
};
