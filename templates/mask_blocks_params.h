// The parameters of mask_blocks' kernels, and what they leave to others, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "expression_params.h"

// Two words of each 32 blocks of keys, the bits of those that a tile of rows sees something of and of those that it
// sees all of; of a tile as many as the longest sequence has, tile after tile, head after head, sequence after
// sequence.
struct AttuneMaskBlocks {
  unsigned* words;  // null: nothing is known
  int tile_words;   // of a tile, in pairs
  int tiles;        // of a head
  int heads;        // of a sequence; 1: all are alike
  int* drawn;       // how many tiles have been taken, which mask_blocks sets to 0; null: tiles come in rounds
};

struct AttuneMaskBlocksParams {
  AttuneExpressionParams expressions;  // of the mask alone
  AttuneMaskBlocks blocks;
  int tile_rows;
  int block_keys;
  int ratio;      // rows of a query in a tile, neighbouring heads
  int gqa_ratio;  // heads of Q of a head of K and V
  int seqlen_q;   // as AttunePrefillParams has them, and all that follow
  int seqlen_k;
  int window_right;
  int total_q;
  int total_k;
  const int* cu_seqlens_q;
  const int* cu_seqlens_k;
  const int* seqused_q;
  const int* seqused_k;
};
