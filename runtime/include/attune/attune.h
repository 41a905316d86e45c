/* Attune's C ABI. Every struct starts with its own size, so that a newer library serves an older
 * caller; no exception crosses it; attune_last_error() explains the last failure of this thread. */
#ifndef ATTUNE_ATTUNE_H
#define ATTUNE_ATTUNE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTUNE_API __attribute__((visibility("default")))
#else
#define ATTUNE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attune_status {
  ATTUNE_OK = 0,
  ATTUNE_INVALID_ARGUMENT = 1, /* a null or misaligned pointer, a bad stride, count or scale */
  ATTUNE_UNSUPPORTED = 2,      /* no template can serve this problem on this device */
  ATTUNE_NOT_COMPILED = 3,     /* no embedded kernel serves it and the compile policy or machine forbids one */
  ATTUNE_NO_DEVICE = 4,        /* no NVIDIA driver, no GPU, or no current CUDA context */
  ATTUNE_DRIVER_ERROR = 5,     /* the CUDA driver refused a call */
  ATTUNE_COMPILE_ERROR = 6,    /* NVRTC, or the emulator's host compiler, refused a source */
  ATTUNE_INTERNAL_ERROR = 7,
  ATTUNE_KERNEL_FAULT = 8 /* the emulator found the kernel doing what no GPU promises to get right;
                             attune_last_error() says where */
} attune_status;

typedef enum attune_dtype { ATTUNE_FP16 = 0, ATTUNE_BF16 = 1 } attune_dtype;

/* When to compile a kernel in process. */
typedef enum attune_compile_policy {
  ATTUNE_COMPILE_MISSING = 0, /* only when no embedded kernel serves the problem */
  ATTUNE_COMPILE_NEVER = 1,
  ATTUNE_COMPILE_EXACT = 2 /* a kernel of the closest head_dim that its template has, unless one is embedded */
} attune_compile_policy;

/* Where kernels run. */
typedef enum attune_device {
  ATTUNE_DEVICE_CUDA = 0,
  ATTUNE_DEVICE_EMULATOR = 1 /* the CPU, thread by thread and checking each access: slow. Tensors and lse are host
                                memory, streams are ignored, a call returns when it is done. */
} attune_device;

typedef struct attune_options {
  size_t struct_size; /* up to the end of cache_dir is enough */
  attune_compile_policy compile_policy;
  const char* cache_dir; /* null: $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune */
  attune_device device;
  uint64_t emulator_seed; /* of the emulator's schedule */
} attune_options;

/* A registry of kernels: embedded ones, and those compiled for it. Thread-safe. */
typedef struct attune_registry attune_registry;

/* A tensor batch x seqlen x heads x head_dim (or head_dim_v). `data` 16-byte aligned; strides in elements, multiples
 * of 8; the last dimension contiguous. */
typedef struct attune_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_seq;
  int64_t stride_head;
} attune_tensor;

/* O = softmax(softmax_scale * Q K^T + mask) V (FlashAttention-2, arXiv 2307.08691). */
typedef struct attune_prefill_args {
  size_t struct_size; /* up to the end of causal is enough */
  attune_dtype dtype;
  attune_tensor q; /* batch x seqlen_q x heads_q  x head_dim */
  attune_tensor k; /* batch x seqlen_k x heads_kv x head_dim */
  attune_tensor v; /* batch x seqlen_k x heads_kv x head_dim_v */
  attune_tensor o; /* batch x seqlen_q x heads_q  x head_dim_v, written */
  float* lse;      /* batch x heads_q x seqlen_q, contiguous, natural log, written; may be null */
  int32_t batch;
  int32_t seqlen_q; /* up to 4 million, 8 million where head_dim is at most 128 */
  int32_t seqlen_k;
  int32_t heads_q;
  int32_t heads_kv;    /* divides heads_q */
  int32_t head_dim;    /* a multiple of 8, at most 256 */
  float softmax_scale; /* finite, >= 0; usually 1/sqrt(head_dim) */
  int32_t causal;      /* 1: query i sees keys j <= i + seqlen_k - seqlen_q */
  int32_t head_dim_v;  /* as head_dim; 0: the same. Another one is served on compute capability 9.0 */
} attune_prefill_args;

/* "0.1.0" */
ATTUNE_API const char* attune_version(void);

/* The last failure of this thread, naming the argument, its value and what is accepted; "" if none. */
ATTUNE_API const char* attune_last_error(void);

/* `options` may be null for the defaults. Needs no GPU: the driver is opened on first need. */
ATTUNE_API attune_status attune_registry_create(const attune_options* options, attune_registry** registry);

/* Unloads its kernels; work already launched must have finished. Null is allowed. */
ATTUNE_API void attune_registry_destroy(attune_registry* registry);

/* Everything attune_prefill does short of the launch, so that a CUDA graph capture or a first request
 * meets a loaded kernel. Pointers in `args` are checked but not used. */
ATTUNE_API attune_status attune_prefill_prepare(attune_registry* registry, const attune_prefill_args* args);

/* Launches on `stream` (a CUstream or cudaStream_t; null is the legacy default stream) of the current
 * CUDA context. Returns once the kernel is queued; may be captured in a graph. (attune_device says how the emulator
 * differs.) */
ATTUNE_API attune_status attune_prefill(attune_registry* registry, const attune_prefill_args* args, void* stream);

#ifdef __cplusplus
}
#endif

#endif
