// Copies of boxes of a tensor of five dimensions; all else is as in tensor_copy.cuh.
#pragma once

#include "tensor_params.h"
#include "types.h"

__device__ __forceinline__ void load_box_5d(u32 address, const AttuneTensorMap& map, u32 barrier, int x, int y, int z,
                                            int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(address),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

__device__ __forceinline__ void store_box_5d(const AttuneTensorMap& map, u32 address, int x, int y, int z, int w,
                                             int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(address), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
