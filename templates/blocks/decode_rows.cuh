// Where the rows of decode's tiles stand, for expressions.
#pragma once

#include "blocks/score_place.cuh"
#include "blocks/visible.cuh"
#include "decode_params.h"
#include "types.h"

__device__ __forceinline__ PaddedScoreRows decode_rows(const AttuneDecodeParams& params, const Visible& visible,
                                                       int batch, int kv_head) {
  return PaddedScoreRows({batch, kv_head * params.gqa_ratio, kv_head, params.gqa_ratio,
                          visible.seqlen_k - visible.seqlen_q, visible.begin});
}
