// Copies of bytes in a row by the copy engine (PTX ISA, "cp.async.bulk"). One thread asks for a copy.
#pragma once

#include "types.h"

// Into shared memory, at `address`; its bytes count at the mbarrier. Both sides are 16-byte aligned, and `bytes` is a
// multiple of 16.
__device__ __forceinline__ void load_bytes(u32 address, const void* pointer, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address),
               "l"(__cvta_generic_to_global(pointer)), "r"(bytes), "r"(barrier)
               : "memory");
}

// Adds floats of shared memory to as many of global memory, in a group of bulk stores (tensor_copy.cuh). Each of them
// is added whole; those of several blocks in any order. Alignment is as above.
__device__ __forceinline__ void add_bytes(float* pointer, u32 address, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(pointer)),
               "r"(address), "r"(bytes)
               : "memory");
}

// Returns once all groups of this thread have been carried out, and it sees what they wrote.
__device__ __forceinline__ void wait_boxes() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
