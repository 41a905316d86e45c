"""Masks and scores of one's own: documents in a batch, with gradients, and a tree of speculated tokens."""

import numpy as np

import attune

random = np.random.default_rng(0)

# Documents one after the other, whose tokens see none of another's; scores fall with the distance; each head has a sink.
q, k, v = random.standard_normal((3, 1, 96, 4, 64)).astype(
    "float16"
)  # (batch, seqlen, heads, head_dim)
documents = np.repeat(np.arange(3, dtype="int32"), 32)[None]  # (batch, seqlen): 3 of 32 tokens
slopes = np.array([0.5, 0.25, 0.125, 0.0625], "float32")
options = {
    "score": lambda s, slope, h, k, p: s + slope[h] * (k - p),
    "mask": lambda doc, b, k, p: (k <= p) & (doc[b, p] == doc[b, k]),
    "params": {"slope": slopes, "doc": documents},
}
out, lse = attune.attention(
    q, k, v, return_lse=True, learnable_sink=np.zeros(4, "float32"), **options
)
alone = attune.flash_attn_func(
    q[:, 64:],
    k[:, 64:],
    v[:, 64:],
    causal=True,
    alibi_slopes=slopes,
    learnable_sink=np.zeros(4, "float32"),
)
print("the last document as if alone:", np.abs(out[:, 64:] - alone).max() < 1e-3)

# PyTorch tensors get the gradients of this call by themselves; other arrays get them from this function. The sinks are
# in the LSE already. A loss of the last document alone leaves the keys of the others without gradients.
dout = np.zeros_like(out)
dout[:, 64:] = random.standard_normal((1, 32, 4, 64))
dq, dk, dv = attune.flash_attn_backward(dout, q, k, v, out, lse, **options)
print("gradients of the last document alone:", dk[:, 64:].any() and not dk[:, :64].any())

# Four tokens, of which 1 and 2 both follow 0, and 3 follows 2; all of them see the cache's other keys.
tree = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], "int32")
k_cache, v_cache = random.standard_normal((2, 8, 16, 2, 64)).astype(
    "float16"
)  # 8 pages of 16 tokens
pages = np.array([[5, 2, 7, 0], [1, 6, 3, 4]], "int32")  # of two sequences
out = attune.attention(
    random.standard_normal((2, 4, 4, 64)).astype("float16"),
    k_cache,
    v_cache,
    mask="k < p - q or tree[q, k - (p - q)] == 1",
    params={"tree": tree},
    cache_seqlens=np.array([60, 23], "int32"),
    block_table=pages,
)
print(out.shape, out.dtype)
