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

/* The version of this header; attune_version() is the library's. runtime/STABILITY.md says what a version promises. */
#define ATTUNE_VERSION_MAJOR 0
#define ATTUNE_VERSION_MINOR 1
#define ATTUNE_VERSION_PATCH 0
/* To compare with: ATTUNE_VERSION_NUMBER >= 10203 from 1.2.3 on. */
#define ATTUNE_VERSION_NUMBER (ATTUNE_VERSION_MAJOR * 10000 + ATTUNE_VERSION_MINOR * 100 + ATTUNE_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attune_status {
  ATTUNE_OK = 0,
  ATTUNE_INVALID_ARGUMENT = 1, /* a null or misaligned pointer, a bad stride, count or scale */
  ATTUNE_UNSUPPORTED = 2,      /* no template can serve this problem on this device */
  ATTUNE_NOT_COMPILED = 3,     /* no kernel that is ready serves it and the compile policy or machine forbids one */
  ATTUNE_NO_DEVICE = 4,        /* no NVIDIA driver, no GPU, or no current CUDA context */
  ATTUNE_DRIVER_ERROR = 5,     /* the CUDA driver refused a call */
  ATTUNE_COMPILE_ERROR = 6,    /* NVRTC, or the emulator's host compiler, refused a source */
  ATTUNE_INTERNAL_ERROR = 7,
  ATTUNE_KERNEL_FAULT = 8 /* the emulator found the kernel doing what no GPU promises to get right;
                             attune_last_error() says where */
} attune_status;

typedef enum attune_dtype { ATTUNE_FP16 = 0, ATTUNE_BF16 = 1 } attune_dtype;

/* When to compile a kernel in process. A kernel is ready when its machine code is embedded in the library, registered
 * by a program that was built with it, or of a bundle; one that was compiled before comes from the disk. */
typedef enum attune_compile_policy {
  ATTUNE_COMPILE_MISSING = 0, /* only when no ready kernel serves the problem, or it is decode's and those that do would
                                 read keys three times and more, for all the heads that share them */
  ATTUNE_COMPILE_FROZEN = 1,  /* not at all: ready kernels, then those on the disk (which only NVRTC, where it is
                                 installed, can tell apart), else ATTUNE_NOT_COMPILED naming the nearest kernel */
  ATTUNE_COMPILE_EXACT = 2,   /* a kernel of the closest head_dim that its template has, unless one is ready */
  /* As EXACT, but a launch does not wait for the compiler where a kernel that pads head_dim is ready, or loaded
   * already: that one serves until the other, compiled by a thread of the registry, takes over. Results may differ in
   * their last bits from then on. A compilation that fails is logged and not tried again. attune_*_prepare waits. So
   * does the emulator, always. The CUDA context of such a launch must live until the registry goes, and the registry
   * must go, or attune_registry_finish be called, before the process exits. */
  ATTUNE_COMPILE_BACKGROUND = 3
} attune_compile_policy;

/* Where kernels run. */
typedef enum attune_device {
  ATTUNE_DEVICE_CUDA = 0,
  ATTUNE_DEVICE_EMULATOR = 1 /* the CPU, thread by thread and checking each access: slow. Tensors and lse are host
                                memory, streams are ignored, a call returns when it is done. */
} attune_device;

typedef enum attune_log_level {
  ATTUNE_LOG_INFO = 0,   /* what was compiled, and what took over */
  ATTUNE_LOG_WARNING = 1 /* what was not as it should be, but made no call fail */
} attune_log_level;

/* Gets one line, without a newline, that is gone when it returns. Called from any thread, from several at once; must
 * not call a function of the same registry. */
typedef void (*attune_log)(void* user, attune_log_level level, const char* message);

typedef struct attune_options {
  size_t struct_size; /* up to the end of cache_dir is enough */
  attune_compile_policy compile_policy;
  const char* cache_dir; /* null: $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune */
  attune_device device;
  uint64_t emulator_seed; /* of the emulator's schedule */
  attune_log log;         /* null: stderr, which gets warnings; $ATTUNE_LOG says otherwise: off, warning, info */
  void* log_user;
  /* Files that `attune pack` has made, of kernels and tables of tuned problems: they come before those that
   * $ATTUNE_BUNDLES names (files with colons between them), those of attune_add_bundle, and the library's own. A file
   * that does not fit is an error here; one of $ATTUNE_BUNDLES is ignored, with a line to the log. The emulator takes
   * their variants and compiles them anew. */
  const char* const* bundles; /* bundle_count paths; null when there are none */
  size_t bundle_count;
} attune_options;

/* A registry of kernels: those of bundles, the library's own, and those compiled for it. Thread-safe. */
typedef struct attune_registry attune_registry;

/* A tensor batch x seqlen x heads x head_dim (or head_dim_v). `data` 16-byte aligned; strides in elements, multiples
 * of 8; the last dimension contiguous.
 *
 * Where attention's head_dim (or head_dim_v) is no multiple of 8, as in columns 0 to 58 of a cache with 64, nothing
 * beyond it is read of k and v, nor written to a cache. The rows of q, o, k_new and v_new go on to the next multiple:
 * what q has there is finite (zeros, say), what o has there is written. */
typedef struct attune_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_seq;
  int64_t stride_head;
} attune_tensor;

/* Dropout of attention's weights P = softmax(..): each is 0 with the probability p, else P / (1 - p). p is rounded to a
 * multiple of 1/256, of which the last is 255/256. Which weights are dropped follows from seed, offset, sequence, head,
 * row and key alone (Philox 4x32, 7 rounds), so that the backward pass drops those that the forward pass dropped. LSE
 * is that of all weights. */
typedef struct attune_dropout {
  float p;              /* at least 0, less than 1; 0: none */
  int64_t seed;         /* any */
  int64_t offset;       /* 0 or more, below 2^44: another one for each call with the same seed */
  const int64_t* state; /* seed and offset in device memory, in place of those two: what a CUDA graph that drops other
                           weights in each replay needs, and must have; null: those two */
} attune_dropout;

typedef enum attune_element { ATTUNE_FP32 = 0, ATTUNE_INT32 = 1 } attune_element;

/* An array that expressions look up, by its name in their text. */
typedef struct attune_named_array {
  const char* name;
  const void* data; /* device memory, contiguous, row-major; never read by the host */
  attune_element element;
  int32_t rank;       /* 1 to 4 */
  int64_t extents[4]; /* as the text's `where` says: heads_q for head, heads_kv for kv_head, batch for batch, at least
                         seqlen_q for query, at least the longest seqlen_k for position, or the number. An index beyond
                         one counts as the nearest inside, whatever computes it */
} attune_named_array;

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
  int32_t head_dim;    /* at most 256; see attune_tensor */
  float softmax_scale; /* from 0 to 2^64; usually 1/sqrt(head_dim) */
  int32_t causal;      /* 1: query i sees keys j <= i + seqlen_k - seqlen_q */
  int32_t head_dim_v;  /* as head_dim; 0: the same. Another one is served on compute capability 9.0 */
  /* A ragged batch: sequences of any lengths, one after the other. Sequence i has the rows from cu_seqlens_q[i] up to
   * cu_seqlens_q[i + 1] of q and o, total_q x heads_q x head_dim, and likewise of k and v, total_k x heads_kv x
   * head_dim; stride_batch does not count, lse is heads_q x total_q. seqlen_q and seqlen_k are the longest lengths; of
   * longer sequences only so many rows and keys count. The arrays are device memory and never read by the host; wild
   * entries give wrong numbers, but no access outside the tensors. Null: no ragged batch */
  const int32_t* cu_seqlens_q; /* batch + 1 */
  const int32_t* cu_seqlens_k; /* batch + 1 */
  const int32_t* seqused_k;    /* batch: how many of a sequence's keys count; null: all, but with pages it is needed */
  int32_t total_q;
  int32_t total_k;
  int32_t window;      /* 1: query i, at position i + seqlen_k - seqlen_q, sees keys from window_left before it to
                          window_right after it, of which causal = 1 makes 0; 0: neither of the two counts */
  int32_t window_left; /* 0 or more, or -1 for all */
  int32_t window_right;
  float softcap; /* scores x, scaled, become softcap * tanh(x / softcap); 0: they stay */
  /* A paged cache: k and v are pages x page_size x heads_kv x head_dim, stride_batch is that of pages, and strides put
   * a page's tokens or its heads outermost. The keys of sequence i are the first seqused_k[i] of the pages that row i
   * of the table names; cu_seqlens_k and total_k do not count. Queries may be a ragged batch or not. Entries beyond a
   * sequence's last key may be anything, and no entry leads outside the tensors. Null, and page_size 0: no cache */
  const int32_t* block_table; /* batch x table_width, contiguous, device memory */
  int32_t table_width;        /* table_width * page_size is at least seqlen_k */
  int32_t pages;
  int32_t page_size;
  /* Speed for memory: attune_prefill_workspace() bytes of device memory, 16-byte aligned; need not be initialised, and
   * is free again after the call's work on its stream. Some kernels then keep every multiprocessor busy to the end,
   * where else some would wait for others: results are the same to the bit. Of a ragged batch in which, by its totals,
   * some sequences have few queries and others many, those of few are decode's, by its kernels (attune explain says
   * whose): their last bits are others, and follow from the lengths of the whole batch. Null, or fewer bytes than
   * are asked for: none is used */
  void* workspace;
  size_t workspace_bytes;
  /* Of a ragged batch, batch: how many of a sequence's rows of q count, to the last of which the masks are aligned;
   * those of o and lse after them are not written. Null: all */
  const int32_t* seqused_q;
  attune_dropout dropout; /* p 0: none */
  /* What scores become before the softmax, and which keys a query sees of those that the masks above leave it: texts as
   * "s + slope[h] * (k - p) where slope: fp32[head]" and "k <= p" (specs/README.md). s is the scaled score, after
   * softcap; q the query's row in its sequence, p its position q + seqlen_k - seqlen_q, k the key's; h and hk the heads
   * of q and of k; b the sequence. A new text is a kernel of its own. Null: neither */
  const char* score;
  const char* mask;
  const attune_named_array* params; /* param_count arrays, of which those are used that the texts name */
  int32_t param_count;
  /* Attention sinks: a logit of each head of q, which is in the softmax of each of its rows as one more key's score,
   * scaled already, whose value is 0. lse has it, too: of a query that sees no key it is the logit. Null: none */
  const void* sink;    /* heads_q, contiguous, device memory */
  int32_t sink_like_q; /* 1: sink has the dtype of q; 0: it is fp32 */
} attune_prefill_args;

/* Rotary position embedding (arXiv 2104.09864): which columns of a key make a pair. */
typedef enum attune_rotary {
  ATTUNE_ROTARY_NONE = 0,
  ATTUNE_ROTARY_INTERLEAVED = 1, /* neighbours: 2i and 2i + 1 */
  ATTUNE_ROTARY_HALVES = 2       /* i and i + rotary_dim / 2 */
} attune_rotary;

/* O = softmax(softmax_scale * Q K^T + mask) V for few queries of each sequence and keys from a cache (Flash-Decoding).
 * The cache is pages of page_size tokens; strides put a page's tokens or its heads outermost. A contiguous cache is a
 * page for each sequence, of its length, with table_width 1. Query i of a sequence stands at position
 * i + seqlen_k - seqlen_q, where seqlen_k counts all keys of the sequence. */
typedef struct attune_decode_args {
  size_t struct_size; /* up to the end of splits is enough */
  attune_dtype dtype;
  attune_tensor q;            /* batch x seqlen_q x heads_q x head_dim */
  attune_tensor k;            /* pages x page_size x heads_kv x head_dim; stride_batch is that of pages */
  attune_tensor v;            /* likewise */
  attune_tensor o;            /* batch x seqlen_q x heads_q x head_dim, written */
  float* lse;                 /* batch x heads_q x seqlen_q, contiguous, natural log, written; may be null */
  const int32_t* seqlens_k;   /* batch, device memory: the keys of each sequence, new ones apart; null: max_seqlen_k */
  const int32_t* block_table; /* batch x table_width, contiguous, device memory: the pages of each sequence, in order;
                                 entries beyond a sequence's last key may be anything. Null: sequence i has page i */
  void* workspace;            /* attune_decode_workspace() bytes of device memory, 16-byte aligned; need not be
                                 initialised, and is free again after the call's work on its stream */
  size_t workspace_bytes;
  int32_t batch;
  int32_t seqlen_q;     /* at most 16; attune_prefill takes more, of the same cache in pages */
  int32_t heads_q;      /* at most 256 times heads_kv */
  int32_t heads_kv;     /* divides heads_q */
  int32_t head_dim;     /* at most 256; see attune_tensor */
  int32_t max_seqlen_k; /* at most table_width * page_size; keys beyond it are not seen */
  int32_t page_size;
  int32_t pages;
  int32_t table_width;
  float softmax_scale;  /* from 0 to 2^64; usually 1/sqrt(head_dim) */
  int32_t window_left;  /* a query sees so many keys before its own position; -1: all */
  int32_t window_right; /* and so many after it; 0: causal, -1: all */
  int32_t splits; /* parts into which each sequence's keys fall, up to 256; results do not depend on the rest of the
                     batch. 0: as many as the library finds fastest; where the device alone knows the lengths, of long
                     sequences, parts of the whole batch's keys */
  float softcap;  /* scores x, scaled, become softcap * tanh(x / softcap); 0: they stay */
  /* New keys and values, which the call first writes into the cache as attune_store_kv does, after the seqlens_k keys
   * that each sequence has, which then has seqlen_new more: max_seqlen_k, windows and positions count them. */
  int32_t seqlen_new;  /* of each sequence; 0: none; then rotary is none, and the other fields up to rotations do not
                          count */
  attune_tensor k_new; /* batch x seqlen_new x heads_kv x head_dim */
  attune_tensor v_new; /* likewise */
  /* Rotation of the new keys, new key i of a sequence to position seqlens_k + i, and of the queries: query i to
   * position seqlens_k + i where window_left or window_right is not -1, else all of them to seqlens_k, as
   * flash-attention has it. It needs new keys. */
  const void* rotary_cos; /* rotations x rotary_dim / 2, contiguous, 16-byte aligned, of the same dtype */
  const void* rotary_sin; /* likewise */
  attune_rotary rotary;
  int32_t rotary_dim; /* the first columns, which are rotated: a multiple of 16, at most head_dim */
  int32_t rotations;  /* keys and queries at positions outside 0 to rotations - 1 are not rotated */
  /* For debugging. 1: first checks seqlens_k (0 to max_seqlen_k - seqlen_new), the entries of block_table that it says
   * are used (0 to pages - 1), leftpad_k (0 to seqlens_k), seqused_q (0 to what cu_seqlens_q says), and cu_seqlens_q
   * and cu_seqlens_k (none below the one before, 0 to total_q and total_k; seqlens_k then is at most the keys between
   * two), waits for the stream, and fails with ATTUNE_INVALID_ARGUMENT on the first that is wrong. Not while the stream
   * is captured. */
  int32_t check_tables;
  /* A ragged batch: sequence i has the queries from row cu_seqlens_q[i] up to cu_seqlens_q[i + 1] of Q and O, at most
   * seqlen_q of them, and maybe none; rows of no sequence are not written. q and o are then total_q x heads_q x
   * head_dim (stride_batch does not count), lse is heads_q x total_q. Wrong entries give wrong numbers, but no access
   * outside the tensors. Not together with new keys. Null: each sequence has seqlen_q */
  const int32_t* cu_seqlens_q; /* batch + 1, contiguous, device memory */
  int32_t total_q;
  /* Packed keys, of a ragged batch: sequence i has the keys from row cu_seqlens_k[i] up to cu_seqlens_k[i + 1] of K and
   * V, of which the first seqlens_k[i] count (seqlens_k null: all), and no more than max_seqlen_k. k and v are then
   * total_k x heads_kv x head_dim; their stride_batch, page_size, pages and table_width do not count, and block_table
   * is null. Wrong entries give wrong numbers, but no access outside the tensors. Null: keys are in a cache */
  const int32_t* cu_seqlens_k; /* batch + 1, contiguous, device memory */
  int32_t total_k;
  /* Sequences that are padded at the left: where each one's first key stands in the cache. What is before it does not
   * exist, though seqlens_k, max_seqlen_k, positions of rotations and block_table count it. Windows follow from the
   * sequence's end and do not change. Wrong entries give wrong numbers, but no access outside the tensors. Null: 0 */
  const int32_t* leftpad_k; /* batch, contiguous, device memory */
  /* Of a ragged batch: how many of a sequence's queries count, which stand at its end; rows of o and lse after them
   * are not written. Null: all */
  const int32_t* seqused_q; /* batch, contiguous, device memory */
  /* As in attune_prefill_args; p and k count from leftpad_k on. Up to 65,535 sequences */
  const char* score;
  const char* mask;
  const attune_named_array* params;
  int32_t param_count;
  const void* sink; /* likewise */
  int32_t sink_like_q;
} attune_decode_args;

/* Writes new keys and values into a cache as attune_decode reads it, the keys rotated on their way. The new tensors and
 * the cache must not overlap, and no two tokens may have one place. */
typedef struct attune_store_kv_args {
  size_t struct_size; /* up to the end of rotations is enough */
  attune_dtype dtype;
  attune_tensor k_new;         /* batch x tokens x heads_kv x head_dim */
  attune_tensor v_new;         /* likewise */
  attune_tensor k;             /* pages x page_size x heads_kv x head_dim, written; stride_batch is that of pages */
  attune_tensor v;             /* likewise */
  const int64_t* slot_mapping; /* batch x tokens, contiguous, device memory: page * page_size + place in the page of
                                  each token; one that is negative or outside the cache is not written. Null: token i
                                  of a sequence becomes its key seqlens_k + i */
  const int32_t* seqlens_k;    /* batch, device memory: the keys that each sequence has already; null: none */
  const int32_t* block_table;  /* batch x table_width, as attune_decode_args; what it does not name or what lies beyond
                                  it is not written. With slot_mapping neither it nor table_width is looked at */
  const int32_t* positions;    /* batch x tokens, contiguous, device memory: the row of rotary_cos and rotary_sin for
                                  each token; null: seqlens_k + i */
  const void* rotary_cos;      /* rotations x rotary_dim / 2, contiguous, 16-byte aligned, of the same dtype; with
                                  ATTUNE_ROTARY_NONE none of positions, these and the counts below is looked at */
  const void* rotary_sin;      /* likewise */
  int32_t batch;
  int32_t tokens; /* of each sequence; slot_mapping may leave some out */
  int32_t heads_kv;
  int32_t head_dim; /* at most 256; see attune_tensor */
  int32_t page_size;
  int32_t pages;
  int32_t table_width; /* 1 for a contiguous cache */
  attune_rotary rotary;
  int32_t rotary_dim; /* the first columns, which are rotated: a multiple of 16, at most head_dim */
  int32_t rotations;  /* a key at a position outside 0 to rotations - 1 is stored as it is */
  /* As attune_decode_args has it. 1: checks slot_mapping (-1, or 0 to pages * page_size - 1) or, where that is null,
   * seqlens_k (0 to table_width * page_size - tokens) and the entries of block_table that the new keys need. */
  int32_t check_tables;
} attune_store_kv_args;

/* Merges attention over some keys and attention over others into attention over all of them:
 * e^lse = e^lse1 + e^lse2, o = e^(lse1 - lse) o1 + e^(lse2 - lse) o2. Where an LSE is -inf its O is not read. */
typedef struct attune_merge_states_args {
  size_t struct_size;
  attune_dtype dtype;
  attune_tensor o1;  /* batch x seqlen x heads x head_dim */
  attune_tensor o2;  /* likewise */
  attune_tensor o;   /* likewise, written; may be o1 or o2, and else is apart from both */
  const float* lse1; /* batch x heads x seqlen, contiguous, natural log */
  const float* lse2; /* likewise */
  float* lse;        /* likewise, written, apart from both; may be null */
  int32_t batch;
  int32_t seqlen;
  int32_t heads;
  int32_t head_dim; /* a multiple of 8, at most 256 */
} attune_merge_states_args;

/* Rotates the first rotary_dim columns of queries and keys, in place, by the angles of their positions (rotary position
 * embedding, arXiv 2104.09864). */
typedef struct attune_rotary_embedding_args {
  size_t struct_size;
  attune_dtype dtype;
  attune_tensor q;          /* batch x seqlen x heads_q x head_dim */
  attune_tensor k;          /* batch x seqlen x heads_kv x head_dim, apart from q; not looked at where heads_kv is 0 */
  const int32_t* positions; /* batch x seqlen, contiguous, device memory: the row of rotary_cos and rotary_sin for each
                               row; null: offsets + i */
  const int32_t* offsets;   /* batch, device memory: the position of each sequence's first row; null: 0 */
  const void* rotary_cos;   /* rotations x rotary_dim / 2, contiguous, 16-byte aligned, of the same dtype */
  const void* rotary_sin;   /* likewise */
  int32_t batch;
  int32_t seqlen;
  int32_t heads_q;
  int32_t heads_kv;     /* 0: there are no keys */
  int32_t head_dim;     /* a multiple of 8, at most 256 */
  attune_rotary rotary; /* ATTUNE_ROTARY_INTERLEAVED or ATTUNE_ROTARY_HALVES */
  int32_t rotary_dim;   /* a multiple of 16, at most head_dim */
  int32_t rotations;    /* a row at a position outside 0 to rotations - 1 stays as it is */
} attune_rotary_embedding_args;

/* The gradients of attune_prefill: of o = softmax(softmax_scale * q k^T + mask) v, and of its LSE, by q, k and v
 * (FlashAttention-2, arXiv 2307.08691). o and lse are those that attune_prefill wrote with the same arguments, which
 * cannot be known here: others give wrong numbers. A query that sees no key has a gradient of zeros and, where its q
 * and dout are finite, adds to no other; a key that no query sees has zeros, too. */
typedef struct attune_backward_args {
  size_t struct_size;
  attune_dtype dtype;
  attune_tensor q;    /* batch x seqlen_q x heads_q  x head_dim */
  attune_tensor k;    /* batch x seqlen_k x heads_kv x head_dim */
  attune_tensor v;    /* batch x seqlen_k x heads_kv x head_dim_v */
  attune_tensor o;    /* batch x seqlen_q x heads_q  x head_dim_v */
  attune_tensor dout; /* the gradient of o, likewise */
  attune_tensor dq;   /* the gradient of q, like it, written; apart from all other tensors, as dk and dv are */
  attune_tensor dk;   /* that of k, likewise; summed over the heads of q that share a head of k and v */
  attune_tensor dv;   /* that of v, likewise */
  const float* lse;  /* batch x heads_q x seqlen_q, contiguous, natural log; -inf (or +inf) where a query sees no key */
  const float* dlse; /* the gradient of lse, likewise; null: zeros */
  /* attune_backward_workspace() bytes of device memory, 16-byte aligned; need not be initialised, and is free again
   * after the call's work on its stream. For each head of q and each of its rows it is 8 bytes and up to
   * 4 * 256 + 1 / 4 more (4 for each column of a kernel's head_dim). Rows are those of every sequence rounded up to a
   * multiple of 128, of a ragged batch total_q + 128 * batch rounded up so. Where few blocks of keys would have many
   * query heads, each head of k and each of its keys, of every sequence as long as the longest rounded up to a
   * multiple of 128, has up to 8 * 256 + 1 more */
  void* workspace;
  size_t workspace_bytes;
  int32_t batch;    /* at most 65,535, as heads_q is; 0: nothing is written */
  int32_t seqlen_q; /* up to 4 million */
  int32_t seqlen_k;
  int32_t heads_q;
  int32_t heads_kv;    /* divides heads_q */
  int32_t head_dim;    /* a multiple of 8, at most 256 */
  int32_t head_dim_v;  /* likewise; 0: as head_dim */
  float softmax_scale; /* as attune_prefill had it, as what follows */
  int32_t causal;
  int32_t window;
  int32_t window_left;
  int32_t window_right;
  float softcap;
  /* A ragged batch, as attune_prefill_args has it: of dq, dk and dv rows that no sequence has or uses become zeros;
   * lse and dlse are heads_q x total_q. Null: no ragged batch */
  const int32_t* cu_seqlens_q; /* batch + 1 */
  const int32_t* cu_seqlens_k; /* batch + 1 */
  const int32_t* seqused_q;    /* batch; null: all */
  const int32_t* seqused_k;    /* batch; null: all */
  int32_t total_q;
  int32_t total_k;
  int32_t any_order; /* 1: the fastest kernels, which may add to dq in any order, so that it differs in its last bits
                        from call to call; 0: the same bits every time */
  attune_dropout dropout; /* as attune_prefill had it */
  /* As attune_prefill had them: what scores become and which keys a query sees. The score only adds to s, as
   * "s + slope[h] * (k - p)", without softcap: gradients pass it as they are. Parameters have none; a sink is in lse */
  const char* score;
  const char* mask;
  const attune_named_array* params;
  int32_t param_count;
} attune_backward_args;

/* What a registry has done since it was made. */
typedef struct attune_counters {
  size_t struct_size;    /* set by the caller; no more than so many bytes are written */
  uint64_t hits;         /* look-ups that found their kernel loaded: one for each kernel of a call, without a lock */
  uint64_t misses;       /* look-ups that did not, or that waited for a better one (attune_*_prepare) */
  uint64_t ready_loads;  /* kernels loaded that were ready */
  uint64_t disk_loads;   /* kernels loaded from the disk */
  uint64_t compiles;     /* kernels compiled */
  double compile_ms;     /* time that compilers took, on any thread */
  uint64_t bytes_loaded; /* of kernels' images */
  uint64_t fallbacks;    /* times that a more general kernel was put in a better one's place: while that is compiled in
                            the background, because that failed, or because there is no compiler */
  uint64_t swaps;        /* times that a kernel took over from such a one */
  uint64_t failures;     /* look-ups and background compilations that ended in an error */
  uint64_t pending;      /* background compilations that wait or run, now */
} attune_counters;

/* What the arguments of a call are for. */
typedef enum attune_operation {
  ATTUNE_PREFILL = 0,          /* attune_prefill_args */
  ATTUNE_DECODE = 1,           /* attune_decode_args */
  ATTUNE_STORE_KV = 2,         /* attune_store_kv_args */
  ATTUNE_MERGE_STATES = 3,     /* attune_merge_states_args */
  ATTUNE_ROTARY_EMBEDDING = 4, /* attune_rotary_embedding_args */
  ATTUNE_BACKWARD = 5          /* attune_backward_args */
} attune_operation;

/* One call to prepare. */
typedef struct attune_prepare_item {
  attune_operation operation;
  const void* args; /* as the operation says */
} attune_prepare_item;

/* How far attune_prepare_all has come. */
typedef struct attune_prepare_progress {
  size_t struct_size;
  size_t done;          /* items, this one included */
  size_t total;         /* items of the call */
  size_t item;          /* the one just done: its index */
  const char* name;     /* its problem in words; "" where its arguments are no problem at all */
  double seconds;       /* that it took */
  attune_status status; /* of it */
  const char* message;  /* why it failed; "" where it did not. As name, gone when the callback returns */
} attune_prepare_progress;

/* Which kernel serves a call, by name. */
typedef struct attune_serving {
  size_t struct_size; /* set by the caller */
  char now[256];      /* the one that is loaded; "" before such a call was launched or prepared */
  char coming[256];   /* the one that is being compiled in the background and is to take over; "" where none is */
} attune_serving;

/* Called from any thread, but from one at a time. */
typedef void (*attune_prepare_callback)(void* user, const attune_prepare_progress* progress);

/* "0.1.0" */
ATTUNE_API const char* attune_version(void);

/* The last failure of this thread, naming the argument, its value and what is accepted; "" if none. */
ATTUNE_API const char* attune_last_error(void);

/* Adds the bytes of a bundle to the process: every registry created afterwards has its kernels and tables of tuned
 * problems. The bytes are not copied, and must stay as they are until the process ends. Thread-safe; may be called
 * before main(). */
ATTUNE_API attune_status attune_add_bundle(const void* data, size_t bytes);

/* `options` may be null for the defaults. Needs no GPU: the driver is opened on first need. */
ATTUNE_API attune_status attune_registry_create(const attune_options* options, attune_registry** registry);

/* Unloads its kernels; work already launched must have finished. Waits for a kernel that is being compiled in the
 * background. Null is allowed. */
ATTUNE_API void attune_registry_destroy(attune_registry* registry);

/* Fills in `counters`, whose struct_size the caller sets. */
ATTUNE_API attune_status attune_registry_counters(const attune_registry* registry, attune_counters* counters);

/* Fills in what serves such a call now, on the GPU of the current context; of decode its first kernel. Loads nothing.
 */
ATTUNE_API attune_status attune_registry_serving(attune_registry* registry, attune_operation operation,
                                                 const void* args, attune_serving* serving);

/* For a process that keeps its registry until it exits: drops what is to be compiled in the background, waits for the
 * one kernel that is being compiled, and brings the record of $ATTUNE_RECORD up to date. What serves then serves on. */
ATTUNE_API attune_status attune_registry_finish(attune_registry* registry);

/* Prepares calls of any operations, as their own attune_*_prepare do, on up to `threads` threads (0: one for each core)
 * in the caller's CUDA context. `callback`, which may be null, is told of each. All are tried: the status, and
 * attune_last_error(), are those of the first item that failed. */
ATTUNE_API attune_status attune_prepare_all(attune_registry* registry, const attune_prepare_item* items, size_t count,
                                            int32_t threads, attune_prepare_callback callback, void* user);

/* Everything attune_prefill does short of its launches, so that a CUDA graph capture or a first request meets loaded
 * kernels. Pointers in `args` are checked but not used. */
ATTUNE_API attune_status attune_prefill_prepare(attune_registry* registry, const attune_prefill_args* args);

/* Bytes of workspace that attune_prefill makes use of for these shapes on the current context's device; often 0.
 * Strides are not read, nor pointers but for whether they are null; the kernel is loaded as attune_prefill does.
 * Enough, too, for a kernel that is to take over. */
ATTUNE_API attune_status attune_prefill_workspace(attune_registry* registry, const attune_prefill_args* args,
                                                  size_t* bytes);

/* Launches on `stream` (a CUstream or cudaStream_t; null is the legacy default stream) of the current
 * CUDA context. Returns once the kernel is queued; may be captured in a graph. (attune_device says how the emulator
 * differs.) */
ATTUNE_API attune_status attune_prefill(attune_registry* registry, const attune_prefill_args* args, void* stream);

/* Bytes of workspace that attune_decode needs for these shapes on the current context's device; 0 with splits 1. Only
 * dtype, counts, splits, softcap, rotary and whether seqlens_k, cu_seqlens_q and cu_seqlens_k are null are read; where
 * splits is 0 it loads the kernel as attune_decode does. Enough, too, for a kernel that is to take over from the one
 * that serves now. */
ATTUNE_API attune_status attune_decode_workspace(attune_registry* registry, const attune_decode_args* args,
                                                 size_t* bytes);

/* Everything attune_decode does short of its launches, as attune_prefill_prepare; needs no workspace. */
ATTUNE_API attune_status attune_decode_prepare(attune_registry* registry, const attune_decode_args* args);

/* Launches on `stream`, as attune_prefill: up to three kernels for each 65,535 sequences, one after the other. */
ATTUNE_API attune_status attune_decode(attune_registry* registry, const attune_decode_args* args, void* stream);

/* As attune_prefill_prepare and attune_prefill. */
ATTUNE_API attune_status attune_store_kv_prepare(attune_registry* registry, const attune_store_kv_args* args);
ATTUNE_API attune_status attune_store_kv(attune_registry* registry, const attune_store_kv_args* args, void* stream);
ATTUNE_API attune_status attune_merge_states_prepare(attune_registry* registry, const attune_merge_states_args* args);
ATTUNE_API attune_status attune_merge_states(attune_registry* registry, const attune_merge_states_args* args,
                                             void* stream);
ATTUNE_API attune_status attune_rotary_embedding_prepare(attune_registry* registry,
                                                         const attune_rotary_embedding_args* args);
ATTUNE_API attune_status attune_rotary_embedding(attune_registry* registry, const attune_rotary_embedding_args* args,
                                                 void* stream);

/* Bytes of workspace that attune_backward needs for these shapes and strides on the current context's device. A tensor
 * whose data is null is taken for a contiguous one: it need not be there yet. Pointers are not read, other than whether
 * they are null; the kernel is loaded as attune_backward does. Enough, too, for a kernel that is to take over. Shorter
 * sequences may need more, whose query heads are in parts: the bound that attune_backward_args names holds for all. */
ATTUNE_API attune_status attune_backward_workspace(attune_registry* registry, const attune_backward_args* args,
                                                   size_t* bytes);

/* Everything attune_backward does short of its launches, as attune_prefill_prepare; needs no workspace. */
ATTUNE_API attune_status attune_backward_prepare(attune_registry* registry, const attune_backward_args* args);

/* Launches on `stream`, as attune_prefill: three kernels, one after the other. */
ATTUNE_API attune_status attune_backward(attune_registry* registry, const attune_backward_args* args, void* stream);

#ifdef __cplusplus
}
#endif

#endif
