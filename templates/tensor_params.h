// The parameter block of kernels that leave reading Q, K and V and writing O to the copy engine; plain C like params.h,
// and part of the same ATTUNE_PARAMS_ABI.
#pragma once

// A tensor as the copy engine sees it (cuTensorMapEncodeTiled): head_dim, seqlen, heads, batch. Of ragged kernels the
// batch is replaced by rows again (blocks/ragged_tiles.cuh).
struct AttuneTensorMap {
#ifdef __cplusplus
  alignas(64)
#else
  _Alignas(64)
#endif
      unsigned char opaque[128];
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
  int group_heads;  // (batch, head) pairs of that kind whose tiles are taken before those of the next pairs
  // Kernels with a window or a softcap, as in params.h.
  int window_left;
  int window_right;
  float cap_scale;
  // Ragged kernels, as in params.h. seqlen_q and seqlen_k are no more than total_q and total_k there.
  int total_q;
  int total_k;
  const int* cu_seqlens_q;
  const int* cu_seqlens_k;
  const int* seqused_k;
};
