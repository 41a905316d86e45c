// Asynchronous copies from global to shared memory (PTX ISA, "cp.async", "cp.async.commit_group",
// "cp.async.wait_group"; compute capability 8.0). A copy is visible to the thread that issued it after the wait
// that covers its group, and to other threads after a barrier that follows that wait.
#pragma once

#include "types.h"

// Writes 16 bytes: the first `bytes` (1 to 16) are copied and the others zeros, or all are zeros and nothing is read
// where `valid` is false. Both sides 16-byte aligned. Cached in L2 only: a block reads each byte once. Other `bytes`
// than a constant 16 cost five instructions more, as the copy then has its size in the low bits of the address.
__device__ __forceinline__ void cp_async(u32 shared_address, const void* pointer, u32 bytes, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address),
               "l"(__cvta_generic_to_global(pointer)), "r"(valid ? bytes : 0)
               : "memory");
}

// All of them.
__device__ __forceinline__ void cp_async(u32 shared_address, const void* pointer, bool valid) {
  cp_async(shared_address, pointer, 16, valid);
}

// Closes this thread's current group of copies; a group may be empty.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups are still under way.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
