// The parameters of kernels whose blocks share the keys of the last tiles, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

#include "tensor_params.h"

struct AttuneSharedPrefillParams : AttuneTensorPrefillParams {
  int whole_tiles;              // that rounds take, as many for each thread block; or all there are
  int share;                    // blocks of keys of the others that each thread block gets, a tile's at least...
  int longer_shares;            // ... and how many thread blocks, the first ones, get one more
  float* partials;              // of every consumer warp of every thread block (blocks/unfinished_tile.cuh)
  unsigned long long* signals;  // of each of those warps: `launch` from when its partials are there until they are read
  unsigned long long launch;    // which nothing else has written there
};
