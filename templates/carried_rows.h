// The parameters of kernels that carry rows from one block of keys to the next in memory, under params.h's
// ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

struct AttuneCarriedPrefillParams : AttunePrefillParams {
  // O before its division by l, m and l of each 16 rows of each tile of each (batch, head) pair, as mma has them: a
  // lane's four floats of 8 columns of O, those of the other lanes, the next columns; then each lane's m and l. Need
  // not be initialised.
  float* carried;
};
