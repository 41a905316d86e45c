// The parameter block of kernels that leave reading Q, K and V to the copy engine; plain C like params.h.
#ifndef ATTUNE_TENSOR_PARAMS_H
#define ATTUNE_TENSOR_PARAMS_H

#include "params.h"

// A tensor as the copy engine sees it (cuTensorMapEncodeTiled), in the order head_dim, seqlen, heads, batch.
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
  struct AttunePrefillParams problem;
  int q_blocks;     // tiles of a head
  int group_heads;  // (batch, head) pairs whose tiles are taken before those of the next pairs
};

#endif
