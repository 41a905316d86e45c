// The parameter block of the kernel that rotates queries and keys; plain C like params.h, and part of the same
// ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

// Rotary position embedding in place of the first rotary_dim columns of each row.
struct AttuneRotaryParams {
  struct AttuneTensor q;  // batch x seqlen x heads_q x head_dim, read and written
  struct AttuneTensor k;  // batch x seqlen x heads_kv x head_dim, likewise
  const int* positions;   // batch x seqlen: the row of cos and sin; null: offsets + i
  const int* offsets;     // batch: the position of a sequence's first row; null: 0
  const void* cos;        // rotations x rotary_dim / 2, contiguous, of the kernel's dtype
  const void* sin;        // likewise
  int batch;
  int seqlen;
  int heads_q;
  int heads_kv;    // 0: there is no k
  int rotary_dim;  // a multiple of 16
  int rotations;   // rows at positions beyond them stay as they are
};
