"""Ragged batches: NumPy arrays in the emulator, PyTorch tensors on a GPU, and what is wrong with arguments."""

import re

import numpy as np
import pytest
from cached import paged
from conftest import assert_attends, random_array

import attune

LENGTHS_Q = (0, 5, 70, 1)
LENGTHS_K = (30, 0, 91, 66)


def int32(values):
    return np.array(values, np.int32)


def starts(lengths):
    return int32(np.cumsum((0, *lengths)))


def problem(dtype="float16", heads_q=4, heads_kv=2, head_dim=64):
    """q, k, v and the arguments that say where sequences are."""
    q = random_array((sum(LENGTHS_Q), heads_q, head_dim), dtype, 1)
    k, v = (random_array((sum(LENGTHS_K), heads_kv, head_dim), dtype, seed) for seed in (2, 3))
    return q, k, v, starts(LENGTHS_Q), starts(LENGTHS_K), max(LENGTHS_Q), max(LENGTHS_K)


def assert_each_attends(result, q, k, v, used=LENGTHS_K, **options):
    """Every sequence of (out, lse, None) by itself."""
    out, lse, dmask = result
    assert dmask is None
    assert out.shape == q.shape
    assert (lse.shape, lse.dtype) == ((q.shape[1], q.shape[0]), np.float32)
    at_q, at_k = starts(LENGTHS_Q), starts(LENGTHS_K)
    for index, keys in enumerate(used):
        rows = slice(at_q[index], at_q[index + 1])
        seen = slice(at_k[index], at_k[index] + keys)
        if LENGTHS_Q[index] == 0:
            continue
        arrays = (q[rows][None], k[seen][None], v[seen][None])
        assert_attends(out[rows][None], *arrays, lse[:, rows][None], **options)


@pytest.mark.parametrize(
    ("sizes", "options", "asked"),
    [
        ({}, {}, {}),
        ({"heads_q": 6, "head_dim": 40}, {"causal": True}, {"causal": True}),
        ({"heads_kv": 1}, {"window_size": (20, 3)}, {"window": (20, 3)}),
        ({}, {"softcap": 0.7, "softmax_scale": 0.2}, {"softcap": 0.7, "scale": 0.2}),
    ],
    ids=["plain", "causal", "window", "softcap"],
)
def test_agrees_with_float64(dtype, sizes, options, asked):
    arguments = problem(dtype, **sizes)
    result = attune.flash_attn_varlen_func(*arguments, return_attn_probs=True, **options)
    assert_each_attends(result, *arguments[:3], **asked)
    alone = attune.flash_attn_varlen_func(*arguments, **options)
    assert isinstance(alone, np.ndarray)
    assert alone.tobytes() == result[0].tobytes()


def test_only_the_used_keys_count():
    q, k, v, *where = problem()
    used = (30, 0, 40, 66)
    k[30 + 40 : 30 + 91] = np.nan
    result = attune.flash_attn_varlen_func(
        q, k, v, *where, causal=True, return_attn_probs=True, seqused_k=int32(used)
    )
    assert_each_attends(result, q, k, v, used, causal=True)


@pytest.mark.parametrize("page_size", [1, 16, 100])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 0.7}])
def test_keys_in_the_pages_of_a_cache(dtype, page_size, options):
    q, k, v, *where = problem(dtype)
    starts_k = starts(LENGTHS_K)
    batches = np.zeros((2, len(LENGTHS_K), max(LENGTHS_K), *k.shape[1:]), k.dtype)
    for cache, flat in zip(batches, (k, v)):
        for sequence, length in enumerate(LENGTHS_K):
            cache[sequence, :length] = flat[starts_k[sequence] :][:length]
    *pools, table = paged(*batches, page_size)
    named = options | {"seqused_k": int32(LENGTHS_K), "block_table": table}
    where[1] = None  # cu_seqlens_k
    result = attune.flash_attn_varlen_func(q, *pools, *where, return_attn_probs=True, **named)
    assert_each_attends(result, q, k, v, **options)


def test_equal_lengths_have_the_numbers_of_a_batch():
    q, k, v = (random_array((3, 40, 2, 64), "float16", seed) for seed in (1, 2, 3))
    flat = [x.reshape(120, 2, 64) for x in (q, k, v)]
    out = attune.flash_attn_varlen_func(*flat, *[int32([0, 40, 80, 120])] * 2, 40, 40, causal=True)
    assert_attends(out.reshape(q.shape), q, k, v, causal=True)


def test_a_given_output_is_written_and_returned():
    q, k, v, *where = problem()
    expected = attune.flash_attn_varlen_func(q, k, v, *where)
    wide = np.full((len(q), 4, 128), 7, "float16")
    out = wide[:, :, :64]
    assert attune.flash_attn_varlen_func(q, k, v, *where, out=out) is out
    assert out.tobytes() == expected.tobytes()
    assert (wide[:, :, 64:] == 7).all()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only; results are written to it"):
        attune.flash_attn_varlen_func(q, k, v, *where, out=out)


def test_heads_before_rows():
    q, k, v, *where = problem()
    q, k, v = (x.transpose(1, 0, 2).copy().transpose(1, 0, 2) for x in (q, k, v))
    result = attune.flash_attn_varlen_func(q, k, v, *where, return_attn_probs=True)
    assert_each_attends(result, q, k, v)


Q, K, V, CU_Q, CU_K, _, _ = problem()
NAMES = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"q": Q[None]},
            ValueError,
            "q has shape (1, 76, 4, 64); it must be (total_q, heads_q, head_dim)",
        ),
        (
            {"k": K[..., :32]},
            ValueError,
            "k has shape (187, 2, 32); with q of (76, 4, 64) its head_dim must be 64",
        ),
        (
            {"v": V[:9]},
            ValueError,
            "v has shape (9, 2, 64); with k of (187, 2, 64) it must be (187, 2, head_dim_v)",
        ),
        ({"k": K[:, [0] * 3], "v": V[:, [0] * 3]}, ValueError, "k has 3 heads; they must divide"),
        ({"q": Q[..., ::2]}, ValueError, "q has strides (256, 64, 2), in elements; the last dim"),
        ({"cu_seqlens_q": CU_Q[:, None]}, ValueError, "cu_seqlens_q has shape (5, 1); it must be"),
        (
            {"cu_seqlens_k": CU_K[:4]},
            ValueError,
            "cu_seqlens_k has shape (4,); with 4 sequences in cu_seqlens_q it must be (batch + 1,)",
        ),
        (
            {"seqused_k": CU_K},
            ValueError,
            "seqused_k has shape (5,); with 4 sequences in cu_seqlens_q it must be (batch,)",
        ),
        (
            {"block_table": CU_Q[:4, None], "k": K[:, None], "v": V[:, None]},
            ValueError,
            "seqused_k is None; with a block_table it says how many keys each sequence has",
        ),
        (
            {"block_table": CU_Q[:4, None]},
            ValueError,
            "k has shape (187, 2, 64); it must be (blocks, page_size, heads_kv, head_dim)",
        ),
        (
            {"cu_seqlens_k": None},
            TypeError,
            "cu_seqlens_k is a NoneType; it must be a numpy.ndarray, as q is",
        ),
        ({"max_seqlen_q": -1}, ValueError, "seqlen_q is -1"),
        ({"out": Q[:, :2]}, ValueError, "out has shape (76, 2, 64); it must be (76, 4, 64)"),
        ({"cu_seqlens_q": [0, 1]}, TypeError, "cu_seqlens_q is a list; it must be a numpy.ndarray"),
        ({"cu_seqlens_k": CU_K.astype("int64")}, TypeError, "cu_seqlens_k has dtype int64; it mus"),
        ({"max_seqlen_k": 2.5}, TypeError, "max_seqlen_k is a float; it must be an integer"),
        ({"window_size": 3}, TypeError, "window_size is 3; it must be (left, right), two integers"),
        ({"dropout_p": 0.5}, NotImplementedError, "dropout_p is 0.5; only 0 is served yet"),
        ({"alibi_slopes": Q}, NotImplementedError, "alibi_slopes is a numpy.ndarray; only None"),
    ],
)
def test_mistakes_are_named(change, error, message):
    arguments = dict(zip(NAMES, problem())) | change
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_varlen_func(**arguments)
