"""Prefill and one step of decoding, with NumPy arrays in the emulator: no GPU is needed."""

import numpy as np

import attune

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 128, 4, 64)).astype("float16")
out = attune.flash_attn_func(q, k, v, causal=True)  # (batch, seqlen, heads, head_dim)
print(out.shape, out.dtype)
# One new query of each sequence attends to a cache of keys and values.
q = np.ones((2, 1, 8, 64), "float16")  # (batch, seqlen_q, heads_q, head_dim)
k_cache, v_cache = np.ones((2, 2, 256, 2, 64), "float16")  # each (batch, seqlen_cache, heads_kv, head_dim)
lengths = np.array([200, 37], "int32")
out = attune.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths, causal=True)
print(out.shape, bool((out == 1).all()))
