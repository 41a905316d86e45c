"""alibi_slopes: scores that fall with the distance of keys, as flash-attn 2.8 has them, in every forward function."""

import numpy as np
import pytest
from conftest import random_array

import attune

HEADS, HEADS_KV, DIM = 4, 2, 64
OF_HEADS = np.array([0.5, 0.25, 0.125, 0.0625], "float32")
OF_SEQUENCES = np.random.default_rng(3).random((3, HEADS)).astype("float32")
each_slopes = pytest.mark.parametrize(
    "slopes", [OF_HEADS, OF_SEQUENCES], ids=["heads", "batch and heads"]
)
each_mask = pytest.mark.parametrize(
    "mask", [{}, {"causal": True}, {"window_size": (9, 3)}, {"softcap": 2.0}], ids=str
)


def drawn(lengths_q, lengths_k):
    return [
        tuple(
            random_array((n, heads, DIM), "float16", 10 * b + i)
            for i, (n, heads) in enumerate([(x, HEADS), (y, HEADS_KV), (y, HEADS_KV)])
        )
        for b, (x, y) in enumerate(zip(lengths_q, lengths_k))
    ]


def expected(b, q, k, v, slopes, causal=False, window_size=(-1, -1), softcap=0.0):
    """(out, lse) of one sequence in float64: -slope * |i + seqlen_k - seqlen_q - j| beside each score."""
    k, v = (np.repeat(x.astype("float64"), HEADS // HEADS_KV, 1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q.astype("float64"), k) / np.sqrt(DIM)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    slope = (slopes if slopes.ndim == 1 else slopes[b]).astype("float64")
    p = np.arange(len(q))[:, None] + len(k) - len(q)
    j = np.arange(len(k))
    s -= slope[:, None, None] * np.abs(p - j)
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = (left >= 0) & (j < p - left) | (right >= 0) & (j > p + right)
    s = np.where(hidden, -np.inf, s)
    top = s.max(-1, keepdims=True)
    weights = np.exp(s - top)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights / total, v), (top + np.log(total))[..., 0]


def check(out, lse, *sequence, **options):
    exact, exact_lse = expected(*sequence, **options)
    np.testing.assert_allclose(out.astype("float64"), exact, atol=4e-3)
    np.testing.assert_allclose(lse, exact_lse, atol=1e-3)


@each_slopes
@each_mask
def test_in_a_dense_batch(slopes, mask):
    sequences = drawn((30,) * 3, (45,) * 3)
    q, k, v = (np.stack(one) for one in zip(*sequences))
    out, lse, _ = attune.flash_attn_func(
        q, k, v, alibi_slopes=slopes, return_attn_probs=True, **mask
    )
    packed, *_ = attune.flash_attn_kvpacked_func(
        q, np.stack([k, v], 2), alibi_slopes=slopes, return_attn_probs=True, **mask
    )
    np.testing.assert_array_equal(packed, out)
    for b, one in enumerate(sequences):
        check(out[b], lse[b], b, *one, slopes, **mask)


@each_slopes
@pytest.mark.parametrize("longest", [30, 4], ids=["prefill", "few queries"])
def test_in_a_ragged_batch(slopes, longest):
    lengths = (longest, 1, longest - 2), (45, 20, 33)
    sequences = drawn(*lengths)
    starts = [np.cumsum([0, *one]).astype("int32") for one in lengths]
    q, k, v = (np.concatenate(one) for one in zip(*sequences))
    call = (*starts, longest, 45)
    options = {"alibi_slopes": slopes, "causal": True, "return_attn_probs": True}
    out, lse, _ = attune.flash_attn_varlen_func(q, k, v, *call, **options)
    packed, *_ = attune.flash_attn_varlen_kvpacked_func(q, np.stack([k, v], 1), *call, **options)
    np.testing.assert_array_equal(packed, out)
    for b, one in enumerate(sequences):
        rows = slice(starts[0][b], starts[0][b + 1])
        check(out[rows], lse[:, rows], b, *one, slopes, causal=True)


@each_slopes
@pytest.mark.parametrize("append", [False, True])
def test_in_a_cache(slopes, append):
    sequences = drawn((3,) * 3, (45, 20, 33))
    caches = np.zeros((2, 3, 64, HEADS_KV, DIM), "float16")
    lengths = np.array([45, 20, 33], "int32")
    new = {}
    for b, (_, *pair) in enumerate(sequences):
        for cache, one in zip(caches, pair):
            cache[b, : len(one) - 3 * append] = one[: len(one) - 3 * append]
    if append:
        lengths -= 3
        new = {
            name: np.stack([one[place][-3:] for one in sequences])
            for place, name in ((1, "k"), (2, "v"))
        }
    out, lse = attune.flash_attn_with_kvcache(
        np.stack([one[0] for one in sequences]),
        *caches,
        cache_seqlens=lengths,
        causal=True,
        alibi_slopes=slopes,
        return_softmax_lse=True,
        **new,
    )
    for b, one in enumerate(sequences):
        check(out[b], lse[b], b, *one, slopes, causal=True)


def test_with_a_head_dim_that_is_padded_and_of_one_array():
    qkv = random_array((2, 20, 3, HEADS, 60), "float16", 5)
    out = attune.flash_attn_qkvpacked_func(qkv, alibi_slopes=OF_HEADS)
    q, k, v = (np.ascontiguousarray(qkv[:, :, i]) for i in range(3))
    np.testing.assert_array_equal(out, attune.flash_attn_func(q, k, v, alibi_slopes=OF_HEADS))
    assert not np.array_equal(out, attune.flash_attn_func(q, k, v))


@pytest.mark.parametrize(
    ("slopes", "error", "message"),
    [
        (OF_HEADS[:3], ValueError, r"alibi_slopes has shape \(3,\); it must be \(4,\) or \(3, 4\)"),
        (OF_SEQUENCES[:2], ValueError, r"alibi_slopes has shape \(2, 4\); it must be"),
        (OF_SEQUENCES[None], ValueError, r"alibi_slopes has shape \(1, 3, 4\); it must be"),
        (
            OF_HEADS.astype("float64"),
            TypeError,
            "alibi_slopes has dtype float64; it must be float32",
        ),
        (
            OF_HEADS.astype("float16"),
            TypeError,
            "alibi_slopes has dtype float16; it must be float32",
        ),
        (np.repeat(OF_HEADS, 2)[::2], ValueError, "alibi_slopes has a stride of 2"),
        ([0.5] * 4, TypeError, "alibi_slopes is a list"),
    ],
)
def test_what_is_wrong_is_named(slopes, error, message):
    q = np.zeros((3, 2, HEADS, DIM), "float16")
    starts = np.array([0, 2, 4, 6], "int32")
    with pytest.raises(error, match=message):
        attune.flash_attn_func(q, q, q, alibi_slopes=slopes)
    with pytest.raises(error, match=message):
        attune.flash_attn_with_kvcache(q, q, q, alibi_slopes=slopes)
    rows = q.reshape(6, HEADS, DIM)
    with pytest.raises(error, match=message):
        attune.flash_attn_varlen_func(rows, rows, rows, starts, starts, 2, 2, alibi_slopes=slopes)
