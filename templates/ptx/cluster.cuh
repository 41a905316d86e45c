// Blocks of a thread-block cluster, which may read each other's shared memory (PTX ISA, "Special Registers",
// "barrier.cluster", "mapa", "ld"; compute capability 9.0).
#pragma once

#include "ptx/floats.cuh"
#include "types.h"

// This block's number in its cluster, and how many blocks the cluster has.
__device__ __forceinline__ u32 cluster_block() {
  u32 number;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
  return number;
}
__device__ __forceinline__ u32 cluster_blocks() {
  u32 count;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

// For all threads of all blocks of the cluster. What any of them wrote to its block's shared memory before, all may
// read behind it. Nothing is said of other memory: a barrier with `release` would wait until the whole GPU sees what
// each wrote there, too (PTX ISA 8.6, "fence", sync_restrict).
__device__ __forceinline__ void cluster_barrier() {
#if __CUDACC_VER_MAJOR__ >= 13
  asm volatile(
      "fence.release.sync_restrict::shared::cta.cluster;\n"
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The same for threads that have written nothing for others since the barrier before. A block's shared memory goes with
// the block: none may end before others have used what they read there for the last time, so that this follows it.
__device__ __forceinline__ void cluster_end() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// What stands at that address of the own shared memory in that of the cluster's block of this number; `address` 16-byte
// aligned.
__device__ __forceinline__ Float4 load_cluster_floats(u32 address, u32 block) {
  Float4 f;
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}"
      : "=f"(f.value[0]), "=f"(f.value[1]), "=f"(f.value[2]), "=f"(f.value[3])
      : "r"(address), "r"(block)
      : "memory");
  return f;
}

// The same for one float; `address` 4-byte aligned.
__device__ __forceinline__ float load_cluster_float(u32 address, u32 block) {
  float value;
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n"
      "}"
      : "=f"(value)
      : "r"(address), "r"(block)
      : "memory");
  return value;
}
