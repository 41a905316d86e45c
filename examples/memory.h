/* Memory for the C and C++ examples: a GPU's where there is one and the CUDA runtime is linked, else the host's, for
 * the emulator. With a toolkit of your own you would call cudaMalloc and cudaMemcpy instead. */
#ifndef EXAMPLES_MEMORY_H
#define EXAMPLES_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef USE_CUDA
#include <cuda_runtime_api.h>
#endif

static inline int has_gpu(void) {
#ifdef USE_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return 0;
#endif
}

/* Zeros, which host and GPU see. */
static inline uint16_t* allocate(size_t elements) {
  void* memory = NULL;
#ifdef USE_CUDA
  if (has_gpu()) {
    if (cudaMallocManaged(&memory, elements * sizeof(uint16_t), cudaMemAttachGlobal) != cudaSuccess) abort();
    memset(memory, 0, elements * sizeof(uint16_t));
    return (uint16_t*)memory;
  }
#endif
  memory = calloc(elements, sizeof(uint16_t));
  if (memory == NULL) abort();
  return (uint16_t*)memory;
}

static inline void release(uint16_t* memory) {
#ifdef USE_CUDA
  if (has_gpu()) {
    cudaFree(memory);
    return;
  }
#endif
  free(memory);
}

/* Waits for the work on the GPU. Returns 0, or another number where it failed. */
static inline int synchronize(void) {
#ifdef USE_CUDA
  if (has_gpu()) return (int)cudaDeviceSynchronize();
#endif
  return 0;
}

/* A bfloat16 is the upper half of a float. */
static inline uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static inline float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#endif
