// The parameter block of the kernels of the backward pass; plain C like params.h, and part of the same
// ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

// Rows of the workspace that belong to a sequence begin and end at multiples of it, so that tiles of 16 to 128 rows
// never reach into those of another one.
#define ATTUNE_BACKWARD_ROWS 128

// The gradients of O = softmax(scale * Q K^T + mask) V and of its LSE. With P = softmax(..), dP = dO V^T and
// D = rowsum(dO * O) - dLSE: dV = P^T dO, dS = P * (dP - D), dK = scale * dS^T Q, dQ = scale * dS K. Masks, ragged
// batches, scale_log2 and cap_scale are those of AttunePrefillParams.
struct AttuneBackwardParams {
  struct AttuneTensor q;     // batch x seqlen_q x heads_q  x head_dim
  struct AttuneTensor k;     // batch x seqlen_k x heads_kv x head_dim
  struct AttuneTensor v;     // batch x seqlen_k x heads_kv x head_dim_v
  struct AttuneTensor o;     // batch x seqlen_q x heads_q  x head_dim_v
  struct AttuneTensor dout;  // likewise
  struct AttuneTensor dq;    // as q, written; of a ragged batch zeros in rows that no sequence has or uses
  struct AttuneTensor dk;    // as k, likewise
  struct AttuneTensor dv;    // as v, likewise
  const float* lse;          // batch x heads_q x seqlen_q, contiguous, natural log; of a ragged batch heads_q x total_q
  const float* dlse;         // likewise; null: zeros
  // The workspace, in rows of all sequences: sequence i begins at row i * padded_seqlen_q or, of a ragged batch, at
  // cu_seqlens_q[i] + i * ATTUNE_BACKWARD_ROWS rounded down to a multiple of ATTUNE_BACKWARD_ROWS.
  float* statistics;  // heads_q x padded_rows x 2: LSE in base 2 and D. Where there is no row, or it sees no key, LSE
                      // is +inf, so that P is 0, and D is 0
  float* dq_sums;     // heads_q x padded_rows x dq_columns, what blocks of keys add to dQ, in pieces of 16 rows x 8
                      // columns as mma has them (blocks/dq_sums.cuh); null: a kernel of its own computes dQ
  unsigned long long* turns;  // of kernels that add in an order (blocks/gradient_sums.cuh): a word of each B_r of
                              // heads_q x padded_rows, two where B_c is 64; not initialised
  // Of kernels whose blocks have query heads that share keys in parts (blocks/head_parts.cuh), where they do:
  float* key_sums;                // dK and dV of each tile of keys as accumulators have them, batch x heads_kv x tiles
  unsigned long long* key_turns;  // which part has left its sums: a word of each warp of those; not initialised
  unsigned long long launch;      // a number that no memory holds; nor do those that follow
  float scale;                    // of the scores, without a soft cap's part
  float scale_log2;
  float cap_scale;
  int batch;
  int heads_q;
  int seqlen_q;
  int seqlen_k;
  int head_dim;
  int head_dim_v;
  int gqa_ratio;
  int head_parts;  // 1: a block has all heads that share its keys
  int part_heads;  // heads of a part: gqa_ratio / head_parts
  int window_left;
  int window_right;
  int padded_seqlen_q;  // seqlen_q rounded up to ATTUNE_BACKWARD_ROWS
  int padded_rows;      // at most 2^31 - 1
  int dq_columns;
  int dq_in_quads;  // 1: of a piece of dq_sums the four elements that a lane has in an accumulator lie side by side
  int total_q;
  int total_k;
  const int* cu_seqlens_q;  // batch + 1
  const int* cu_seqlens_k;  // batch + 1
  const int* seqused_q;     // batch; null: all
  const int* seqused_k;     // batch; null: all
};
