// The kernel parameter block, read by host and device alike: plain C, no headers, so that the host
// compiler, nvcc and NVRTC agree on every offset. A change here changes ATTUNE_PARAMS_ABI, which is
// part of every cache key.
#pragma once

#define ATTUNE_PARAMS_ABI 14

// One tensor of shape batch x seqlen x heads x head_dim whose last dimension is contiguous.
// Strides count elements and may describe any order of the other three (BSHD, BHSD, packed QKV).
struct AttuneTensor {
  void* data;
  long long stride_batch;
  long long stride_seq;
  long long stride_head;
};

// Attention forward over a whole sequence: O = softmax(scale * Q K^T + mask) V.
struct AttunePrefillParams {
  struct AttuneTensor q;  // batch x seqlen_q x heads_q  x head_dim
  struct AttuneTensor k;  // batch x seqlen_k x heads_kv x head_dim
  struct AttuneTensor v;  // batch x seqlen_k x heads_kv x head_dim
  struct AttuneTensor o;  // batch x seqlen_q x heads_q  x head_dim
  float* lse;             // batch x heads_q x seqlen_q, contiguous, natural log; may be null
  float scale_log2;       // softmax scale times log2(e): softmax runs in base 2
  int batch;
  int heads_q;
  int seqlen_q;
  int seqlen_k;
  int head_dim;   // a multiple of 8, at most the variant's; missing columns read as zero
  int gqa_ratio;  // heads_q / heads_kv
  // Kernels with a window: query i sees keys from window_left before its own position, i + seqlen_k - seqlen_q, to
  // window_right behind it. Both are 0 or more; no more than seqlen_k and seqlen_q, which hide nothing.
  int window_left;
  int window_right;
  // Kernels with a softcap, whose scale_log2 is softcap * log2(e): scores x become tanh(ln(2) / 2 * cap_scale * x).
  float cap_scale;
  // Ragged kernels: sequence i has the rows from cu_seqlens_q[i] up to cu_seqlens_q[i + 1] of Q and O, total_q x
  // heads_q x head_dim, and likewise keys; seqlen_q and seqlen_k are the most that count. lse is heads_q x total_q.
  int total_q;
  int total_k;
  const int* cu_seqlens_q;  // batch + 1
  const int* cu_seqlens_k;  // batch + 1
  const int* seqused_q;     // batch: how many of a sequence's rows of Q and O count; null: all
  const int* seqused_k;     // and of its keys
  // Kernels for a paged cache: k and v are pages x page_size x heads_kv x head_dim, a sequence's keys lie in the pages
  // that its table names, one after the other, and seqused_k says how many there are. cu_seqlens_k is not read.
  const int* block_table;  // batch x table_width; entries outside 0 to pages - 1 read as zeros
  int table_width;         // table_width * page_size is at least seqlen_k
  int pages;
  int page_size;
  unsigned page_multiplier;  // key / page_size is key * page_multiplier >> page_shift, in 64 bits
  int page_shift;
  // Kernels with cut_rows: columns of K and V, up to 7 fewer than head_dim. What is beyond them in memory is not read.
  int key_columns;
  // Ragged kernels: sequences of fewer queries are another kernel's, and no row of theirs is written.
  int fewest_queries;
};
