// The maps by which Q comes and O goes, where all tiles have the same.
#pragma once

#include "tensor_params.h"
#include "types.h"

struct SoleMaps {
  template <class QTile, class Tile>
  __device__ __forceinline__ static u32 query_bytes(const AttuneTensorPrefillParams& /*params*/, const Tile& /*tile*/) {
    return QTile::bytes;
  }
  template <class Tile>
  __device__ __forceinline__ static const AttuneTensorMap& queries(const AttuneTensorPrefillParams& params,
                                                                   const Tile& /*tile*/) {
    return params.q;
  }
  template <class Tile>
  __device__ __forceinline__ static const AttuneTensorMap& outputs(const AttuneTensorPrefillParams& params,
                                                                   const Tile& /*tile*/) {
    return params.o;
  }
};
