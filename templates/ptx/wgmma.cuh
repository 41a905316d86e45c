// Products of a warpgroup, under way while it goes on (PTX ISA, "wgmma"), and what becomes of them ("stmatrix"). All
// four warps call each function alike.
#pragma once

#include "ptx/wgmma_shapes.cuh"  // written by the generator (generator/wgmma.cpp)
#include "types.h"

// A matrix in shared memory whose rows of 128 bytes are swizzled as the copy engine's 128-byte mode leaves them, eight
// rows after eight. Behind each run of 128 bytes across, `leading_bytes` further, comes the next (used where n exceeds
// one run). `address` is 1024-byte aligned; 16-byte units may be added to the descriptor to go along a row.
__device__ __forceinline__ u64 matrix_descriptor(u32 address, u32 leading_bytes) {
  constexpr u64 layout = u64{1024 / 16} << 32 | u64{1} << 62;  // eight rows; the swizzle
  return static_cast<u64>((address & 0x3ffff) / 16) | static_cast<u64>(leading_bytes / 16) << 16 | layout;
}

// Before the first product whose registers other instructions wrote; and behind those that then are a group.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Returns once at most `pending` groups of this warp are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// To the compiler these registers change here: it neither reads them earlier nor has anything left to write to them.
template <int tiles>
__device__ __forceinline__ void settle(float (&D)[tiles][4]) {
#pragma unroll
  for (int i = 0; i < tiles; ++i) asm volatile("" : ATTUNE_TILE(i)::"memory");
}

// Four 8 x 8 matrices of 16-bit elements to shared memory, each two columns of accumulators packed into a word: lane
// 8 i + r gives the address of row r of matrix i.
__device__ __forceinline__ void store_matrices(u32 address, const u32 (&word)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
