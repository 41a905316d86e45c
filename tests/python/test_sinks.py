"""learnable_sink: a logit of each head in the softmax of its rows, in every forward function."""

import numpy as np
import pytest
from conftest import random_array

import attune

HEADS, HEADS_KV, DIM = 4, 2, 64
SINKS = np.array([-2.0, 0.5, 3.0, 60.0], "float32")


def drawn(lengths_q, lengths_k):
    return [
        tuple(
            random_array((n, heads, DIM), "float16", 10 * b + i)
            for i, (n, heads) in enumerate([(x, HEADS), (y, HEADS_KV), (y, HEADS_KV)])
        )
        for b, (x, y) in enumerate(zip(lengths_q, lengths_k))
    ]


def expected(q, k, v, causal=False, slopes=None):
    """(out, lse) of one sequence in float64."""
    k, v = (np.repeat(x.astype("float64"), HEADS // HEADS_KV, 1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q.astype("float64"), k) / np.sqrt(DIM)
    p, j = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))
    if slopes is not None:
        s -= slopes[:, None, None] * np.abs(p - j)
    if causal:
        s = np.where(j > p, -np.inf, s)
    sinks = np.broadcast_to(SINKS.astype("float64")[:, None, None], (*s.shape[:2], 1))
    all_scores = np.concatenate([s, sinks], -1)
    top = all_scores.max(-1, keepdims=True)
    weights = np.exp(all_scores - top)
    total = weights.sum(-1, keepdims=True)
    out = np.einsum("hij,jhd->ihd", weights[..., :-1] / total, v)
    return out, (top + np.log(total))[..., 0]


def check(out, lse, exact):
    np.testing.assert_allclose(out.astype("float64"), exact[0], atol=4e-3)
    np.testing.assert_allclose(lse, exact[1], atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_in_a_dense_batch(causal, dtype):
    sequences = drawn((30,) * 2, (25,) * 2)  # under the causal mask some queries see no key
    q, k, v = (np.stack(one) for one in zip(*sequences))
    options = {
        "causal": causal,
        "learnable_sink": SINKS.astype(dtype),
        "return_attn_probs": True,
    }
    out, lse, _ = attune.flash_attn_func(q, k, v, **options)
    packed, *_ = attune.flash_attn_kvpacked_func(q, np.stack([k, v], 2), **options)
    np.testing.assert_array_equal(packed, out)
    for b, one in enumerate(sequences):
        check(out[b], lse[b], expected(*one, causal))
    if causal:
        assert not out[:, :5].any()
        np.testing.assert_allclose(lse[:, :, :5], np.broadcast_to(SINKS[:, None], (2, HEADS, 5)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("longest", [30, 4], ids=["prefill", "few queries"])
def test_in_a_ragged_batch_with_a_sequence_without_keys(longest, dtype):
    lengths = (longest, 2, longest - 2), (45, 0, 33)
    sequences = drawn(*lengths)
    starts = [np.cumsum([0, *one]).astype("int32") for one in lengths]
    q, k, v = (np.concatenate(one) for one in zip(*sequences))
    options = {"causal": True, "learnable_sink": SINKS.astype(dtype), "return_attn_probs": True}
    out, lse, _ = attune.flash_attn_varlen_func(q, k, v, *starts, longest, 45, **options)
    for b, one in enumerate(sequences):
        rows = slice(starts[0][b], starts[0][b + 1])
        check(out[rows], lse[:, rows], expected(*one, causal=True))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("splits", [0, 1, 3])
def test_in_a_cache_beside_slopes(splits, dtype):
    lengths = (300, 0, 33)
    sequences = drawn((3,) * 3, lengths)
    caches = np.zeros((2, 3, 320, HEADS_KV, DIM), "float16")
    for b, (_, *pair) in enumerate(sequences):
        for cache, one in zip(caches, pair):
            cache[b, : len(one)] = one
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], "float32")
    q = np.stack([one[0] for one in sequences])
    out, lse = attune.flash_attn_with_kvcache(
        q,
        *caches,
        cache_seqlens=np.array(lengths, "int32"),
        causal=True,
        alibi_slopes=slopes,
        num_splits=splits,
        return_softmax_lse=True,
        learnable_sink=SINKS.astype(dtype),
    )
    same = attune.attention(
        q,
        *caches,
        score="s - slope[h] * abs(p - k)",
        params={"slope": slopes},
        cache_seqlens=np.array(lengths, "int32"),
        causal=True,
        num_splits=splits,
        learnable_sink=SINKS.astype(dtype),
    )
    for b, one in enumerate(sequences):
        exact = expected(*one, causal=True, slopes=slopes)
        check(out[b], lse[b], exact)
        check(same[b], lse[b], exact)


@pytest.mark.parametrize(
    ("sink", "error", "message"),
    [
        (SINKS[:3], ValueError, r"learnable_sink has shape \(3,\); it must be \(4,\)"),
        (SINKS[None], ValueError, r"learnable_sink has shape \(1, 4\); it must be"),
        (
            SINKS.astype("float64"),
            TypeError,
            "learnable_sink has dtype float64; it must be float32, float16 or bfloat16",
        ),
        (np.repeat(SINKS, 2)[::2], ValueError, "learnable_sink has a stride of 2"),
        ([0.5] * 4, TypeError, "learnable_sink is a list"),
    ],
)
def test_what_is_wrong_is_named(sink, error, message):
    q = np.zeros((3, 2, HEADS, DIM), "float16")
    with pytest.raises(error, match=message):
        attune.flash_attn_func(q, q, q, learnable_sink=sink)
    with pytest.raises(error, match=message):
        attune.flash_attn_with_kvcache(q, q, q, learnable_sink=sink)
