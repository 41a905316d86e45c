// The parameters of kernels that are told which tiles each block computes, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "tensor_params.h"

// Which tiles each block computes, one after the other: those from first[block] to first[block + 1].
struct AttuneTileList {
  static constexpr int most_blocks = 160;
  static constexpr int most_tiles = 8192;
  unsigned short first[most_blocks + 1];
  unsigned short tiles[most_tiles];  // head of all sequences' x q_blocks + block of queries
};

// More than 4 KB, which takes a driver of CUDA 12.1.
struct AttuneListedPrefillParams : AttuneTensorPrefillParams {
  AttuneTileList list;
};
