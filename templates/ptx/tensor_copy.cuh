// Copies of boxes of a tensor by the copy engine (PTX ISA, "cp.async.bulk.tensor"). One thread asks for a copy.
#pragma once

#include "tensor_params.h"
#include "types.h"

// One lane of the warp, always the same; all call it ("elect.sync"). ptxas knows that what follows is one lane's.
__device__ __forceinline__ bool elect_lane() {
  u32 elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

// A box into shared memory, at `address`; its bytes count at the mbarrier. Its first element is at these coordinates,
// innermost dimension first; elements outside the tensor arrive as zeros and count, and where all are, the map's base
// is read. The map says the box's size and the swizzle; with one of 128 bytes `address` is 1024-byte aligned.
__device__ __forceinline__ void load_box(u32 address, const AttuneTensorMap& map, u32 barrier, int x, int y, int z,
                                         int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(address),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Fetches a map ahead of its first use.
__device__ __forceinline__ void prefetch_map(const AttuneTensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A box from shared memory to a tensor, where elements outside are not written; commit_boxes() closes its group.
__device__ __forceinline__ void store_box(const AttuneTensorMap& map, u32 address, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(address), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void commit_boxes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Returns once the shared memory of all groups of this thread has been read.
__device__ __forceinline__ void wait_boxes_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// What this thread stored in shared memory is seen by copies asked for behind a later barrier.
__device__ __forceinline__ void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
