// The parameters of kernels that leave Q, K, V and O to the copy engine; plain data, under params.h's
// ATTUNE_PARAMS_ABI.
#pragma once

// A tensor as the copy engine sees it (cuTensorMapEncodeTiled): head_dim, seqlen, heads, and batch or all rows.
struct AttuneTensorMap {
  alignas(64) unsigned char opaque[128];
};

struct AttuneTensorPrefillParams {
  struct AttuneTensorMap q;  // boxes of 64 columns and B_r rows, swizzled by 128 bytes
  struct AttuneTensorMap k;  // boxes of 64 columns and B_c rows, likewise
  struct AttuneTensorMap v;  // as k
  struct AttuneTensorMap o;  // boxes of 64 columns and 64 rows, likewise
  float* lse;                // batch x heads_q x seqlen_q, contiguous, natural log; may be null
  float scale_log2;          // softmax scale times log2(e): softmax runs in base 2
  int batch;
  int heads_q;
  int seqlen_q;
  int seqlen_k;
  int gqa_ratio;    // heads_q / heads_kv
  int q_blocks;     // tiles of a head; with pack_gqa, of a K/V head
  int group_heads;  // (batch, head) pairs of that kind whose tiles are taken before those of the next pairs; of a
                    // ragged batch as many as have the keys of so many pairs of the longest sequence
  int window_left, window_right;  // of kernels with a window, as in params.h
  float cap_scale;                // of those with a softcap, likewise
  int total_q, total_k;           // of ragged ones, likewise; seqlen_q and seqlen_k are at most these
  const int *cu_seqlens_q, *cu_seqlens_k, *seqused_q, *seqused_k;
  int fewest_queries;  // likewise
  // Of those that stack heads: up to how many queries a sequence has for it, a power of two, or 0, and its logarithm.
  int stack_rows, stack_shift;
};
