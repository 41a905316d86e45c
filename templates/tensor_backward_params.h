// The parameters of kernels of the backward pass that leave their tensors to the copy engine, under params.h's
// ATTUNE_PARAMS_ABI.
#pragma once

#include "backward_params.h"
#include "tensor_params.h"

// The maps are those of the tensors with the same names, in boxes of 64 columns, swizzled by 128 bytes.
struct AttuneTensorBackwardParams : AttuneBackwardParams {
  struct AttuneTensorMap q_map;     // boxes of B_r rows
  struct AttuneTensorMap dout_map;  // likewise
  struct AttuneTensorMap k_map;     // boxes of B_c rows
  struct AttuneTensorMap v_map;     // likewise
  struct AttuneTensorMap dk_map;    // boxes of 64 rows
  struct AttuneTensorMap dv_map;    // likewise
};
