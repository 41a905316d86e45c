/* Calls the installed library through attune.h, as a C program would. What needs a GPU is not asked of it:
 * an empty batch is served anywhere, and a mistake is named anywhere. */
#include <attune/attune.h>
#include <stdio.h>
#include <string.h>

static int expect(int holds, const char* what) {
  if (!holds) fprintf(stderr, "failed: %s (%s)\n", what, attune_last_error());
  return holds ? 0 : 1;
}

int main(void) {
  int failures = 0;
  attune_options options = {0};
  attune_prefill_args args = {0};
  attune_registry* registry = NULL;

  options.struct_size = sizeof(options);
  options.compile_policy = ATTUNE_COMPILE_FROZEN;
  failures += expect(attune_registry_create(&options, &registry) == ATTUNE_OK, "a registry needs no GPU");

  args.struct_size = sizeof(args);
  args.dtype = ATTUNE_BF16;
  args.batch = 0;
  args.seqlen_q = 1024;
  args.seqlen_k = 1024;
  args.heads_q = 32;
  args.heads_kv = 8;
  args.head_dim = 128;
  args.softmax_scale = 0.088388348f;
  args.causal = 1;
  failures += expect(attune_prefill(registry, &args, NULL) == ATTUNE_OK, "an empty batch launches nothing");

  args.head_dim = 100;
  failures += expect(attune_prefill(registry, &args, NULL) == ATTUNE_INVALID_ARGUMENT, "head_dim 100 is refused");
  failures += expect(strstr(attune_last_error(), "head_dim is 100") != NULL, "the message names it");

  attune_registry_destroy(registry);
  printf("attune %s: C ABI %s\n", attune_version(), failures == 0 ? "works" : "is broken");
  return failures == 0 ? 0 : 1;
}
