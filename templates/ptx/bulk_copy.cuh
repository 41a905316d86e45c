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
