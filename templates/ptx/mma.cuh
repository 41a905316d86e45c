// D += A B on the tensor cores: A 16 x 16, B 16 x 8, D 16 x 8 in fp32 (PTX ISA, "mma.sync.m16n8k16"). With
// g = lane / 4 and t = lane % 4 a lane holds, as pairs of 16-bit elements with the lower column (A) or row (B)
// in the lower half,
//   A: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)   B: (2t, g), (2t + 8, g)
// and of D the floats (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). All 32 lanes take part.
#pragma once

#include "types.h"

template <Dtype dtype>
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (dtype == Dtype::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
