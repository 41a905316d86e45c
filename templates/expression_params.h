// The arrays of kernels whose scores or masks a spec's expressions say, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

// A contiguous array, row-major, of up to four dimensions.
struct AttuneArray {
  const void* data;
  int extents[4];  // none is 0; of a dimension that it does not have 1
};

struct AttuneExpressionParams {
  float score_scale;      // q.k times it, after a soft cap's map, is s; scale_log2 is log2(e) where a score is given
  AttuneArray arrays[8];  // of the parameters, the score's first
  const void* sink;       // of kernels with sinks a logit of each head
  int sink_like_q;        // 1: these have the dtype of q; 0: fp32
};
