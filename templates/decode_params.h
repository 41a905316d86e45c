// The parameter block of the kernels that attend to a cache of keys and values, and of the one that combines their
// parts; plain C like params.h, and part of the same ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

// A sequence of which `parts` parts of the whole batch have keys; 0 parts: none.
struct AttuneCut {
  int batch;
  int parts;
};

// Attention of few queries to a cache (Flash-Decoding): O = softmax(scale * Q K^T + mask) V. The cache is pages of
// page_size tokens; a contiguous one is a page for each of its sequences. Query i of a sequence stands at position
// i + seqlen_k - seqlen_q.
struct AttuneDecodeParams {
  struct AttuneTensor q;   // batch x seqlen_q x heads_q x head_dim
  struct AttuneTensor k;   // pages x page_size x heads_kv x head_dim
  struct AttuneTensor v;   // likewise
  struct AttuneTensor o;   // batch x seqlen_q x heads_q x head_dim
  float* lse;              // batch x heads_q x seqlen_q, contiguous, natural log; may be null
  float* partial_o;        // slots x heads_kv x rows x head_dim; rows: seqlen_q * gqa_ratio; see blocks/parts.cuh
  float* partial_lse;      // slots x heads_kv x rows, log base 2
  struct AttuneCut* cuts;  // tiles of rows x parts: the sequence of which that part is the second; null where there are
                           // more parts than sequences
  const int* seqlens_k;    // batch: a sequence has so many keys and seqlen_new; those beyond max_seqlen_k are ignored.
                           // Null: max_seqlen_k
  const int* block_table;  // batch x table_width: pages of each sequence; null: sequence i has page i alone
  float scale_log2;        // softmax scale times log2(e): softmax runs in base 2
  int batch;
  int seqlen_q;
  int heads_kv;
  int gqa_ratio;     // heads_q / heads_kv
  int head_dim;      // a multiple of 8, at most the variant's; missing columns read as zero
  int max_seqlen_k;  // at most table_width * page_size
  int page_size;
  int pages;         // table entries beyond them read as zeros
  int table_width;   // 1 for a contiguous cache
  int window_left;   // a query sees that many keys before its own position; -1: all
  int window_right;  // and that many behind it; 0: causal, -1: all
  int block_keys;    // decode's B_c, in which parts are counted
  int evict_first;   // 1: keys and values are read once and shall not displace what L2 holds
  int splits;        // parts of the keys of each sequence; 0: the keys of the whole batch fall into `parts`
  int parts;         // for each head; batch * splits where splits is not 0
  float cap_scale;   // kernels with a softcap: as in AttunePrefillParams
  int seqlen_new;    // keys that store_kv appended behind seqlens_k
  // Kernels that rotate Q, which have seqlens_k: tables as in AttuneStoreParams.
  int rotary_dim;
  int rotations;
  const void* cos;
  const void* sin;
  // Kernels for ragged batches: sequence i has the queries from cu_seqlens_q[i] up to cu_seqlens_q[i + 1] of total_q,
  // at most seqlen_q. Q and O are total_q x heads_q x head_dim, LSE heads_q x total_q.
  const int* cu_seqlens_q;  // batch + 1
  int total_q;
  int tile_rows;  // decode's B_r, as combine counts rows one by one
  // Of those that read no pages, too; null: keys are in a cache. Sequence i has the keys from row cu_seqlens_k[i] up to
  // cu_seqlens_k[i + 1] of K and V, total_k x heads_kv x head_dim, of which the first seqlens_k[i] count (null: all),
  // at most max_seqlen_k. Any row begins a page here: pages is total_k, stride_batch is stride_seq, block_table is
  // cu_seqlens_k, and table_width is 1.
  const int* cu_seqlens_k;  // batch + 1
  // Each sequence's first key, counted as seqlens_k and max_seqlen_k count: those before it do not exist. Null: 0
  const int* leftpad_k;  // batch
  // Of ragged batches: how many of a sequence's queries count. Null: all
  const int* seqused_q;  // batch
  // Kernels with cut_rows: as in AttunePrefillParams
  int key_columns;
  int warp_rows;  // 1: each warp of combine has a row, of those of all heads; 0: a block has one
  // Of ragged batches: the most queries of a sequence, of which no more count. Where they are more than seqlen_q,
  // sequences of more than seqlen_q are another kernel's, and no row of theirs is written.
  int longest_q;
  // Kernels that read pages: as in AttunePages
  unsigned page_multiplier;
  int page_shift;
};
