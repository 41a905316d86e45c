// Where a box of a tensor map begins, and copies of boxes that begin there.
#pragma once

#include "ptx/tensor_copy.cuh"
#include "ptx/tensor_copy_5d.cuh"
#include "sequence_end.h"
#include "tensor_params.h"
#include "types.h"

// Along all dimensions but the innermost, of a map of four...
struct Box {
  int y;
  int z;
  int w;

  __device__ __forceinline__ void load(u32 address, const AttuneTensorMap& map, u32 barrier, int x) const {
    load_box(address, map, barrier, x, y, z, w);
  }
  __device__ __forceinline__ void store(const AttuneTensorMap& map, u32 address, int x) const {
    store_box(map, address, x, y, z, w);
  }
};

// ... and of a ragged batch's map, whose fifth has one coordinate (blocks/ragged_rows.cuh).
struct SequenceBox {
  int y;
  int z;
  int w;

  __device__ __forceinline__ void load(u32 address, const AttuneTensorMap& map, u32 barrier, int x) const {
    load_box_5d(address, map, barrier, x, y, z, w, ATTUNE_SEQUENCE_END);
  }
  __device__ __forceinline__ void store(const AttuneTensorMap& map, u32 address, int x) const {
    store_box_5d(map, address, x, y, z, w, ATTUNE_SEQUENCE_END);
  }
};
