// Two kernels of a stream that overlap (PTX ISA, "griddepcontrol"): where the launch of the second asked for it, it may
// begin before the first has ended. Before compute capability 9.0 it never does.
#pragma once

#include "types.h"

// Behind this call of all of a kernel's blocks, the next kernel's blocks may begin.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns once the kernel before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
