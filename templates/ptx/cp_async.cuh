// Asynchronous copies from global to shared memory (PTX ISA, "cp.async", "cp.async.commit_group",
// "cp.async.wait_group"; compute capability 8.0). A copy is visible to the thread that issued it after the wait
// that covers its group, and to other threads after a barrier that follows that wait.
#pragma once

#include "types.h"

// Copies 16 bytes, or writes 16 zero bytes and reads nothing where `valid` is false. Both sides 16-byte aligned.
// Cached in L2 only: a block reads each byte once.
__device__ __forceinline__ void cp_async(u32 shared_address, const void* pointer, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address),
               "l"(__cvta_generic_to_global(pointer)), "r"(valid ? 16 : 0)
               : "memory");
}

// What L2 is told of lines that a copy brings: to keep them as long as others, or (`once`) to give them up first, as
// nobody will ask again (PTX ISA, "createpolicy").
__device__ __forceinline__ u64 cache_policy(bool once) {
  u64 policy;
  if (once) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

// The same as above with a policy.
__device__ __forceinline__ void cp_async(u32 shared_address, const void* pointer, bool valid, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address),
               "l"(__cvta_generic_to_global(pointer)), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}

// Closes this thread's current group of copies; a group may be empty.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups are still under way.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
