"""What a server calls: some prompts, then steps of decoding. NumPy arrays, so in the emulator."""

import numpy as np

import attune

for seqlen in (48, 100):
    q = np.ones((1, seqlen, 4, 64), "float16")
    k, v = np.ones((2, 1, seqlen, 2, 64), "float16")
    attune.flash_attn_func(q, k, v, causal=True)
k_cache, v_cache = np.ones((2, 8, 16, 2, 64), "float16")  # pages of 16 tokens
table = np.arange(8, dtype="int32").reshape(2, 4)
lengths = np.array([40, 9], "int32")
attune.flash_attn_with_kvcache(
    np.ones((2, 1, 4, 64), "float16"), k_cache, v_cache, cache_seqlens=lengths, block_table=table
)
print(f"compiled: {attune.counters().compiles}")
