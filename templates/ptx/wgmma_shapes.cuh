// clang-format off
// The products of the variant, S and O, all steps in one statement: D = A * B or D += A * B, D 64 x n floats. For each
// eight columns a lane has two neighbours of row 16 w + g and two of row 16 w + g + 8 (w the warp of the warpgroup, g a
// quarter of the lane). A, 64 x 16 a step, is in registers as mma.sync's fragments ("RS") or, as B, 16 x n, in shared
// memory at a descriptor ("SS") to which steps add A_step and B_step: there the inner dimension is contiguous ("K-
// major"), of a transposed B the other. Until wgmma_wait A and B are read, and D is written.
#pragma once

#include "types.h"

#define ATTUNE_TILE(i) "+f"(D[i][0]), "+f"(D[i][1]), "+f"(D[i][2]), "+f"(D[i][3])
#define ATTUNE_TILE4(i) ATTUNE_TILE(i), ATTUNE_TILE(i + 1), ATTUNE_TILE(i + 2), ATTUNE_TILE(i + 3)
#define ATTUNE_RS(k) "r"(A[k][0]), "r"(A[k][1]), "r"(A[k][2]), "r"(A[k][3]), "n"(B_step(k))
#define ATTUNE_RS4(k) ATTUNE_RS(k), ATTUNE_RS(k + 1), ATTUNE_RS(k + 2), ATTUNE_RS(k + 3)
#define ATTUNE_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define ATTUNE_SS(k) "n"(A_step(first_step + k)), "n"(B_step(first_step + k))
#define ATTUNE_SS4(k) ATTUNE_SS(k), ATTUNE_SS(k + 1), ATTUNE_SS(k + 2), ATTUNE_SS(k + 3)
// Of A transposed ("TS") the rows are contiguous.
#define ATTUNE_SS_128(add, a, b) "add.s64 a, %67, %" #a ";\nadd.s64 b, %66, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ATTUNE_TEN() ATTUNE_TEN(1) ATTUNE_TEN(2) ATTUNE_TEN(3) \
  ATTUNE_TEN(4) ATTUNE_TEN(5) "%60,%61,%62,%63}," "a,b," #add ",1,1,0,%65;\n"
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps>
__device__ __forceinline__ void wgmma(float (&D)[16][4], u64 A, u64 B, bool accumulate) {
  static_assert(steps == 4);
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 a, b;\nsetp.ne.b32 p, %64, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_SS_128(p,68,69) ATTUNE_SS_128(q,70,71) ATTUNE_SS_128(q,72,73) ATTUNE_SS_128(q,74,75) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4), ATTUNE_TILE4(8), ATTUNE_TILE4(12)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), "l"(A), ATTUNE_SS4(0));
}
#define ATTUNE_RS_128(add, a0, a1, a2, a3, b) "add.s64 b, %66, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ATTUNE_TEN() ATTUNE_TEN(1) ATTUNE_TEN(2) ATTUNE_TEN(3) \
  ATTUNE_TEN(4) ATTUNE_TEN(5) "%60,%61,%62,%63}," "{%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "},b," #add ",1,1,%65;\n"
template <Dtype dtype, bool B_transposed, auto B_step>
__device__ __forceinline__ void wgmma(float (&D)[16][4], const u32 (&A)[4][4], u64 B, bool accumulate) {
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 b;\nsetp.ne.b32 p, %64, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_RS_128(p,67,68,69,70,71) ATTUNE_RS_128(q,72,73,74,75,76) ATTUNE_RS_128(q,77,78,79,80,81)
      ATTUNE_RS_128(q,82,83,84,85,86) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4), ATTUNE_TILE4(8), ATTUNE_TILE4(12)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), ATTUNE_RS4(0));
}
template <Dtype dtype, bool B_transposed, auto B_step>
__device__ __forceinline__ void wgmma(float (&D)[16][4], const u32 (&A)[8][4], u64 B, bool accumulate) {
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 b;\nsetp.ne.b32 p, %64, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_RS_128(p,67,68,69,70,71) ATTUNE_RS_128(q,72,73,74,75,76) ATTUNE_RS_128(q,77,78,79,80,81)
      ATTUNE_RS_128(q,82,83,84,85,86) ATTUNE_RS_128(q,87,88,89,90,91) ATTUNE_RS_128(q,92,93,94,95,96)
      ATTUNE_RS_128(q,97,98,99,100,101) ATTUNE_RS_128(q,102,103,104,105,106) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4), ATTUNE_TILE4(8), ATTUNE_TILE4(12)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), ATTUNE_RS4(0), ATTUNE_RS4(4));
}
template <Dtype dtype, bool B_transposed, auto B_step>
__device__ __forceinline__ void wgmma(float (&D)[16][4], const u32 (&A)[1][4], u64 B, bool accumulate) {
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 b;\nsetp.ne.b32 p, %64, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_RS_128(p,67,68,69,70,71) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4), ATTUNE_TILE4(8), ATTUNE_TILE4(12)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), ATTUNE_RS(0));
}
#define ATTUNE_SS_16(add, a, b) "add.s64 a, %11, %" #a ";\nadd.s64 b, %10, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" "%0,%1,%2,%3,%4,%5,%6,%7}," "a,b," #add ",1,1,0,%9;\n"
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps>
__device__ __forceinline__ void wgmma(float (&D)[2][4], u64 A, u64 B, bool accumulate) {
  static_assert(steps == 4);
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 a, b;\nsetp.ne.b32 p, %8, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_SS_16(p,12,13) ATTUNE_SS_16(q,14,15) ATTUNE_SS_16(q,16,17) ATTUNE_SS_16(q,18,19) "}"
      : ATTUNE_TILE(0), ATTUNE_TILE(1)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), "l"(A), ATTUNE_SS4(0));
}
#define ATTUNE_RS_16(add, a0, a1, a2, a3, b) "add.s64 b, %10, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" "%0,%1,%2,%3,%4,%5,%6,%7}," \
  "{%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "},b," #add ",1,1,%9;\n"
template <Dtype dtype, bool B_transposed, auto B_step>
__device__ __forceinline__ void wgmma(float (&D)[2][4], const u32 (&A)[4][4], u64 B, bool accumulate) {
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 b;\nsetp.ne.b32 p, %8, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_RS_16(p,11,12,13,14,15) ATTUNE_RS_16(q,16,17,18,19,20) ATTUNE_RS_16(q,21,22,23,24,25)
      ATTUNE_RS_16(q,26,27,28,29,30) "}"
      : ATTUNE_TILE(0), ATTUNE_TILE(1)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), ATTUNE_RS4(0));
}
#define ATTUNE_SS_64(add, a, b) "add.s64 a, %35, %" #a ";\nadd.s64 b, %34, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ATTUNE_TEN() ATTUNE_TEN(1) ATTUNE_TEN(2) "%30,%31}," \
  "a,b," #add ",1,1,0,%33;\n"
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps>
__device__ __forceinline__ void wgmma(float (&D)[8][4], u64 A, u64 B, bool accumulate) {
  static_assert(steps == 8);
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 a, b;\nsetp.ne.b32 p, %32, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_SS_64(p,36,37) ATTUNE_SS_64(q,38,39) ATTUNE_SS_64(q,40,41) ATTUNE_SS_64(q,42,43) ATTUNE_SS_64(q,44,45)
      ATTUNE_SS_64(q,46,47) ATTUNE_SS_64(q,48,49) ATTUNE_SS_64(q,50,51) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), "l"(A), ATTUNE_SS4(0), ATTUNE_SS4(4));
}
#define ATTUNE_TS_64(add, a, b) "add.s64 a, %35, %" #a ";\nadd.s64 b, %34, %" #b ";\n" \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ATTUNE_TEN() ATTUNE_TEN(1) ATTUNE_TEN(2) "%30,%31}," \
  "a,b," #add ",1,1,1,%33;\n"
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps>
__device__ __forceinline__ void wgmma_transposed(float (&D)[8][4], u64 A, u64 B, bool accumulate) {
  static_assert(steps == 8);
  asm volatile("{\n.reg .pred p, q;\n.reg .b64 a, b;\nsetp.ne.b32 p, %32, 0;\nsetp.eq.b32 q, 0, 0;\n"
      ATTUNE_TS_64(p,36,37) ATTUNE_TS_64(q,38,39) ATTUNE_TS_64(q,40,41) ATTUNE_TS_64(q,42,43) ATTUNE_TS_64(q,44,45)
      ATTUNE_TS_64(q,46,47) ATTUNE_TS_64(q,48,49) ATTUNE_TS_64(q,50,51) "}"
      : ATTUNE_TILE4(0), ATTUNE_TILE4(4)
      : "r"(+accumulate), "n"(+B_transposed), "l"(B), "l"(A), ATTUNE_SS4(0), ATTUNE_SS4(4));
}
