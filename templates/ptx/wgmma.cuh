// Products of a warpgroup, under way while it goes on (PTX ISA, "wgmma"). All four warps call each function alike.
#pragma once

#include "types.h"

// D = A * B, or D += A * B: D is 64 x n in float, of which a lane holds, for each eight columns, two neighbours of row
// 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a quarter of the lane index); A is 64 x 16 and B
// 16 x n. Operands in shared memory are given by descriptors ("matrix descriptor"), and are read, like the registers of
// A, until wgmma_wait says that the group is done; D may not be touched until then.
//
// The instruction names each register of D, and C++ has no operand list that follows a template argument: hence the
// macros, a line for each n, and there the numbers of the operands behind the n / 2 registers of D.
#define ATTUNE_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTUNE_REGISTERS_32 ATTUNE_REGISTERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATTUNE_REGISTERS_48 ATTUNE_REGISTERS_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ATTUNE_REGISTERS_64 ATTUNE_REGISTERS_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTUNE_REGISTERS_80 ATTUNE_REGISTERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ATTUNE_REGISTERS_96 ATTUNE_REGISTERS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ATTUNE_REGISTERS_112 ATTUNE_REGISTERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ATTUNE_REGISTERS_128 ATTUNE_REGISTERS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTUNE_REGISTERS_144 ATTUNE_REGISTERS_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ATTUNE_REGISTERS_160 ATTUNE_REGISTERS_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ATTUNE_REGISTERS_176 ATTUNE_REGISTERS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ATTUNE_REGISTERS_192 ATTUNE_REGISTERS_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ATTUNE_REGISTERS_208 ATTUNE_REGISTERS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ATTUNE_REGISTERS_224 ATTUNE_REGISTERS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ATTUNE_REGISTERS_240 ATTUNE_REGISTERS_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ATTUNE_REGISTERS_256 ATTUNE_REGISTERS_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILES_16 ATTUNE_TILE(0), ATTUNE_TILE(1)
#define ATTUNE_TILES_32 ATTUNE_TILES_16, ATTUNE_TILE(2), ATTUNE_TILE(3)
#define ATTUNE_TILES_48 ATTUNE_TILES_32, ATTUNE_TILE(4), ATTUNE_TILE(5)
#define ATTUNE_TILES_64 ATTUNE_TILES_48, ATTUNE_TILE(6), ATTUNE_TILE(7)
#define ATTUNE_TILES_80 ATTUNE_TILES_64, ATTUNE_TILE(8), ATTUNE_TILE(9)
#define ATTUNE_TILES_96 ATTUNE_TILES_80, ATTUNE_TILE(10), ATTUNE_TILE(11)
#define ATTUNE_TILES_112 ATTUNE_TILES_96, ATTUNE_TILE(12), ATTUNE_TILE(13)
#define ATTUNE_TILES_128 ATTUNE_TILES_112, ATTUNE_TILE(14), ATTUNE_TILE(15)
#define ATTUNE_TILES_144 ATTUNE_TILES_128, ATTUNE_TILE(16), ATTUNE_TILE(17)
#define ATTUNE_TILES_160 ATTUNE_TILES_144, ATTUNE_TILE(18), ATTUNE_TILE(19)
#define ATTUNE_TILES_176 ATTUNE_TILES_160, ATTUNE_TILE(20), ATTUNE_TILE(21)
#define ATTUNE_TILES_192 ATTUNE_TILES_176, ATTUNE_TILE(22), ATTUNE_TILE(23)
#define ATTUNE_TILES_208 ATTUNE_TILES_192, ATTUNE_TILE(24), ATTUNE_TILE(25)
#define ATTUNE_TILES_224 ATTUNE_TILES_208, ATTUNE_TILE(26), ATTUNE_TILE(27)
#define ATTUNE_TILES_240 ATTUNE_TILES_224, ATTUNE_TILE(28), ATTUNE_TILE(29)
#define ATTUNE_TILES_256 ATTUNE_TILES_240, ATTUNE_TILE(30), ATTUNE_TILE(31)
#define ATTUNE_WGMMA(n, type, A_text, B_text, accumulate_text, transposed, ...)                                \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " accumulate_text                           \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" ATTUNE_REGISTERS_##n \
               "}, " A_text ", " B_text ", accumulate, 1, 1, " transposed ";\n}"                               \
               : ATTUNE_TILES_##n                                                                              \
               : __VA_ARGS__, "r"(static_cast<int>(accumulate)))

// A and B in shared memory, both with 16 consecutive elements of the inner dimension in a row ("K-major").
template <Dtype dtype, int tiles>
__device__ __forceinline__ void wgmma(float (&D)[tiles][4], u64 A, u64 B, bool accumulate) {
#define ATTUNE_SIZE(n, a, b, c)                                              \
  if constexpr (tiles * 8 == n && dtype == Dtype::bf16) {                    \
    ATTUNE_WGMMA(n, "bf16", "%" #a, "%" #b, "%" #c, "0, 0", "l"(A), "l"(B)); \
  } else if constexpr (tiles * 8 == n) {                                     \
    ATTUNE_WGMMA(n, "f16", "%" #a, "%" #b, "%" #c, "0, 0", "l"(A), "l"(B));  \
  }
  ATTUNE_SIZE(16, 8, 9, 10)
  ATTUNE_SIZE(32, 16, 17, 18)
  ATTUNE_SIZE(48, 24, 25, 26)
  ATTUNE_SIZE(64, 32, 33, 34)
  ATTUNE_SIZE(80, 40, 41, 42)
  ATTUNE_SIZE(96, 48, 49, 50)
  ATTUNE_SIZE(112, 56, 57, 58)
  ATTUNE_SIZE(128, 64, 65, 66)
  ATTUNE_SIZE(144, 72, 73, 74)
  ATTUNE_SIZE(160, 80, 81, 82)
  ATTUNE_SIZE(176, 88, 89, 90)
  ATTUNE_SIZE(192, 96, 97, 98)
  ATTUNE_SIZE(208, 104, 105, 106)
  ATTUNE_SIZE(224, 112, 113, 114)
  ATTUNE_SIZE(240, 120, 121, 122)
  ATTUNE_SIZE(256, 128, 129, 130)
#undef ATTUNE_SIZE
}

// A in registers, as mma.sync's fragments are; B in shared memory with its n columns in a row ("MN-major").
template <Dtype dtype, int tiles>
__device__ __forceinline__ void wgmma(float (&D)[tiles][4], const u32 (&A)[4], u64 B, bool accumulate) {
#define ATTUNE_SIZE(n, a0, a1, a2, a3, b, c)                                                                       \
  if constexpr (tiles * 8 == n && dtype == Dtype::bf16) {                                                          \
    ATTUNE_WGMMA(n, "bf16", "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}", "%" #b, "%" #c, "1", "r"(A[0]), "r"(A[1]), \
                 "r"(A[2]), "r"(A[3]), "l"(B));                                                                    \
  } else if constexpr (tiles * 8 == n) {                                                                           \
    ATTUNE_WGMMA(n, "f16", "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}", "%" #b, "%" #c, "1", "r"(A[0]), "r"(A[1]),  \
                 "r"(A[2]), "r"(A[3]), "l"(B));                                                                    \
  }
  ATTUNE_SIZE(16, 8, 9, 10, 11, 12, 13)
  ATTUNE_SIZE(32, 16, 17, 18, 19, 20, 21)
  ATTUNE_SIZE(48, 24, 25, 26, 27, 28, 29)
  ATTUNE_SIZE(64, 32, 33, 34, 35, 36, 37)
  ATTUNE_SIZE(80, 40, 41, 42, 43, 44, 45)
  ATTUNE_SIZE(96, 48, 49, 50, 51, 52, 53)
  ATTUNE_SIZE(112, 56, 57, 58, 59, 60, 61)
  ATTUNE_SIZE(128, 64, 65, 66, 67, 68, 69)
  ATTUNE_SIZE(144, 72, 73, 74, 75, 76, 77)
  ATTUNE_SIZE(160, 80, 81, 82, 83, 84, 85)
  ATTUNE_SIZE(176, 88, 89, 90, 91, 92, 93)
  ATTUNE_SIZE(192, 96, 97, 98, 99, 100, 101)
  ATTUNE_SIZE(208, 104, 105, 106, 107, 108, 109)
  ATTUNE_SIZE(224, 112, 113, 114, 115, 116, 117)
  ATTUNE_SIZE(240, 120, 121, 122, 123, 124, 125)
  ATTUNE_SIZE(256, 128, 129, 130, 131, 132, 133)
#undef ATTUNE_SIZE
}

// A matrix in shared memory whose rows of 128 bytes are swizzled as the copy engine's 128-byte mode leaves them, eight
// rows after eight. Behind each run of 128 bytes across, `leading_bytes` further, comes the next (used where n exceeds
// one run). `address` is 1024-byte aligned; 16-byte units may be added to the descriptor to go along a row.
__device__ __forceinline__ u64 matrix_descriptor(u32 address, u32 leading_bytes) {
  constexpr u64 eight_rows = 1024 / 16;
  constexpr u64 swizzle_128 = 1;
  return static_cast<u64>((address & 0x3ffff) / 16) | static_cast<u64>(leading_bytes / 16) << 16 | eight_rows << 32 |
         swizzle_128 << 62;
}

// Before the first product whose registers other instructions wrote.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Makes a group of the products since the last.
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
