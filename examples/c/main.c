/* Prefill from C: on a GPU where there is one, else in the emulator. All queries are zero, so that each takes the mean of
 * the values that it sees; value j is j, and query i sees keys 0 to i. */
#include <attune/attune.h>
#include <stdio.h>

#include "memory.h"

enum { seqlen = 128, heads = 4, head_dim = 64, row = heads * head_dim };

static attune_tensor tensor(uint16_t* data) {
  const attune_tensor result = {data, (int64_t)seqlen * row, row, head_dim};
  return result;
}

int main(void) {
  uint16_t* q = allocate((size_t)seqlen * row);
  uint16_t* k = allocate((size_t)seqlen * row);
  uint16_t* v = allocate((size_t)seqlen * row);
  uint16_t* o = allocate((size_t)seqlen * row);
  for (size_t i = 0; i < (size_t)seqlen * row; ++i) v[i] = to_bf16((float)(i / row));

  attune_options options = {.struct_size = sizeof options,
                            .device = has_gpu() ? ATTUNE_DEVICE_CUDA : ATTUNE_DEVICE_EMULATOR};
  attune_registry* registry = NULL;
  attune_status status = attune_registry_create(&options, &registry);

  attune_prefill_args args = {.struct_size = sizeof args, .dtype = ATTUNE_BF16,
                              .batch = 1, .seqlen_q = seqlen, .seqlen_k = seqlen,
                              .heads_q = heads, .heads_kv = heads, .head_dim = head_dim,
                              .softmax_scale = 0.125f, .causal = 1,
                              .q = tensor(q), .k = tensor(k), .v = tensor(v), .o = tensor(o)};
  if (status == ATTUNE_OK) status = attune_prefill(registry, &args, NULL);
  if (status != ATTUNE_OK || synchronize() != 0) {
    fprintf(stderr, "%s\n", attune_last_error());
    return 1;
  }
  int wrong = 0;
  for (size_t i = 0; i < (size_t)seqlen * row; ++i) wrong += from_bf16(o[i]) != (float)(i / row) / 2;
  printf("%s: %d of %d elements are not what they should be\n", has_gpu() ? "GPU" : "emulator", wrong, seqlen * row);

  attune_registry_destroy(registry);
  release(q);
  release(k);
  release(v);
  release(o);
  return wrong == 0 ? 0 : 1;
}
