// Asynchronous copies that tell L2 how long to keep what they bring (PTX ISA, "createpolicy", "cp.async").
#pragma once

#include "types.h"

// What L2 is told of lines that a copy brings: to keep them as long as others, or (`once`) to give them up first, as
// nobody will ask again.
__device__ __forceinline__ u64 cache_policy(bool once) {
  u64 policy;
  if (once) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

// cp_async() with a policy.
__device__ __forceinline__ void cp_async(u32 shared_address, const void* pointer, u32 bytes, bool valid, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address),
               "l"(__cvta_generic_to_global(pointer)), "r"(valid ? bytes : 0), "l"(policy)
               : "memory");
}
