"""Ragged batches: NumPy arrays in the emulator, PyTorch tensors on a GPU, and what is wrong with arguments."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from cached import in_wider_rows, paged
from conftest import assert_attends, random_array

import attune

LENGTHS_Q = (0, 5, 70, 1)
SHORT_Q = (0, 5, 8, 1)  # so few queries are served by decode
LENGTHS_K = (30, 0, 91, 66)


def int32(values):
    return np.array(values, np.int32)


def starts(lengths):
    return int32(np.cumsum((0, *lengths)))


def problem(dtype="float16", heads_q=4, heads_kv=2, head_dim=64, lengths_q=LENGTHS_Q):
    """q, k, v and the arguments that say where sequences are."""
    q = random_array((sum(lengths_q), heads_q, head_dim), dtype, 1)
    k, v = (random_array((sum(LENGTHS_K), heads_kv, head_dim), dtype, seed) for seed in (2, 3))
    return q, k, v, starts(lengths_q), starts(LENGTHS_K), max(lengths_q), max(LENGTHS_K)


def assert_each_attends(result, q, k, v, used=LENGTHS_K, lengths_q=LENGTHS_Q, **options):
    """Every sequence of (out, lse, None) by itself."""
    out, lse, dmask = result
    assert dmask is None
    assert out.shape == q.shape
    assert (lse.shape, lse.dtype) == ((q.shape[1], q.shape[0]), np.float32)
    at_q, at_k = starts(lengths_q), starts(LENGTHS_K)
    for index, keys in enumerate(used):
        rows = slice(at_q[index], at_q[index + 1])
        seen = slice(at_k[index], at_k[index] + keys)
        if lengths_q[index] == 0:
            continue
        arrays = (q[rows][None], k[seen][None], v[seen][None])
        assert_attends(out[rows][None], *arrays, lse[:, rows][None], **options)


any_queries = pytest.mark.parametrize("lengths_q", [LENGTHS_Q, SHORT_Q], ids=["long", "short"])


@any_queries
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
def test_agrees_with_float64(dtype, sizes, options, asked, lengths_q):
    arguments = problem(dtype, lengths_q=lengths_q, **sizes)
    result = attune.flash_attn_varlen_func(*arguments, return_attn_probs=True, **options)
    assert_each_attends(result, *arguments[:3], lengths_q=lengths_q, **asked)
    alone = attune.flash_attn_varlen_func(*arguments, **options)
    assert isinstance(alone, np.ndarray)
    assert alone.tobytes() == result[0].tobytes()


@any_queries
def test_only_the_used_keys_count(lengths_q):
    q, k, v, *where = problem(lengths_q=lengths_q)
    used = (30, 0, 40, 66)
    k[30 + 40 : 30 + 91] = np.nan
    result = attune.flash_attn_varlen_func(
        q, k, v, *where, causal=True, return_attn_probs=True, seqused_k=int32(used)
    )
    assert_each_attends(result, q, k, v, used, lengths_q, causal=True)


@any_queries
@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=["full", "causal"])
def test_rows_behind_the_used_queries_are_left_alone(lengths_q, page_size, options):
    q, k, v, *where = problem(lengths_q=lengths_q)
    used = tuple(min(length, 3) for length in lengths_q)
    unused = np.ones(len(q), bool)
    for first, count in zip(starts(lengths_q), used):
        unused[first : first + count] = False
    q[unused] = np.nan
    cache, named = (k, v), dict(options)
    if page_size is not None:
        batches = np.zeros((2, len(LENGTHS_K), max(LENGTHS_K), *k.shape[1:]), k.dtype)
        for padded, flat in zip(batches, (k, v)):
            for sequence, first in enumerate(starts(LENGTHS_K)[:-1]):
                length = LENGTHS_K[sequence]
                padded[sequence, :length] = flat[first : first + length]
        *cache, named["block_table"] = paged(*batches, page_size)
    out = np.full_like(q, 7)
    given, lse, _ = attune.flash_attn_varlen_func(
        q, *cache, *where, return_attn_probs=True, seqused_q=int32(used), out=out, **named
    )
    assert given is out
    assert (out[unused] == 7).all()
    at_q, at_k = starts(lengths_q), starts(LENGTHS_K)
    for sequence, count in enumerate(used):
        rows = slice(at_q[sequence], at_q[sequence] + count)
        keys = slice(at_k[sequence], at_k[sequence + 1])
        if count > 0:
            arrays = (q[rows][None], k[keys][None], v[keys][None])
            assert_attends(out[rows][None], *arrays, lse[:, rows][None], **options)


@any_queries
@pytest.mark.parametrize("page_size", [1, 16, 100])
@pytest.mark.parametrize(
    ("options", "given"),
    [({}, "both"), ({"causal": True}, "seqused_k"), ({"softcap": 0.7}, "cu_seqlens_k")],
)
def test_keys_in_the_pages_of_a_cache(dtype, page_size, options, given, lengths_q):
    q, k, v, *where = problem(dtype, lengths_q=lengths_q)
    starts_k = starts(LENGTHS_K)
    batches = np.zeros((2, len(LENGTHS_K), max(LENGTHS_K), *k.shape[1:]), k.dtype)
    for cache, flat in zip(batches, (k, v)):
        for sequence, length in enumerate(LENGTHS_K):
            cache[sequence, :length] = flat[starts_k[sequence] :][:length]
    *pools, table = paged(*batches, page_size)
    named = options | {"block_table": table}
    if given != "cu_seqlens_k":
        named["seqused_k"] = int32(LENGTHS_K)
    if given == "seqused_k":
        where[1] = None  # cu_seqlens_k
    result = attune.flash_attn_varlen_func(q, *pools, *where, return_attn_probs=True, **named)
    assert_each_attends(result, q, k, v, lengths_q=lengths_q, **options)


@any_queries
def test_packed_arrays_have_the_bits_of_separate_ones(lengths_q):
    q, k, v, at_q, at_k, *longest = problem(lengths_q=lengths_q, heads_kv=4)
    options = {"causal": True, "window_size": (30, 2), "return_attn_probs": True}
    expected = attune.flash_attn_varlen_func(q, k, v, at_q, at_k, *longest, **options)
    kv = np.stack([k, v], 1)
    found = attune.flash_attn_varlen_kvpacked_func(q, kv, at_q, at_k, *longest, **options)
    for one, other in zip(found[:2], expected[:2]):
        assert one.tobytes() == other.tobytes()
    qkv = np.stack([q, q * 2, q * 3], 1)
    where = (at_q, at_q, longest[0], longest[0])
    expected = attune.flash_attn_varlen_func(q, q * 2, q * 3, *where, **options)
    found = attune.flash_attn_varlen_qkvpacked_func(qkv, at_q, longest[0], **options)
    for one, other in zip(found[:2], expected[:2]):
        assert one.tobytes() == other.tobytes()


def test_packed_shapes_are_named():
    *_, at_q, at_k, longest_q, longest_k = problem()
    message = "kv has shape (187, 2, 64); it must be (total_k, 2, heads_kv, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_varlen_kvpacked_func(Q, K, at_q, at_k, longest_q, longest_k)
    message = "qkv has shape (76, 4, 64); it must be (total, 3, heads, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_varlen_qkvpacked_func(Q, at_q, longest_q)


@any_queries
def test_a_head_dim_of_any_size(lengths_q):
    q, k, v, *where = problem(head_dim=59, lengths_q=lengths_q)
    result = attune.flash_attn_varlen_func(q, k, v, *where, return_attn_probs=True)
    assert_each_attends(result, q, k, v, lengths_q=lengths_q)
    with pytest.raises(
        ValueError, match="out is given, and q has head_dim 59; out is written where"
    ):
        attune.flash_attn_varlen_func(q, k, v, *where, out=q)


@any_queries
@pytest.mark.parametrize("head_dim", [59, 111])
def test_pages_of_any_head_dim_are_read_in_place(head_dim, lengths_q):
    q, k, v, at_q, at_k, *longest = problem(head_dim=head_dim, lengths_q=lengths_q)
    room = [np.zeros((4, max(LENGTHS_K), *k.shape[1:]), k.dtype) for _ in "kv"]
    for array, rows in zip(room, (k, v)):
        for sequence, keys in enumerate(LENGTHS_K):
            array[sequence, :keys] = rows[at_k[sequence] : at_k[sequence] + keys]
    *cache, table = paged(*room, 16)
    arguments = (at_q, None, *longest)
    options = {
        "block_table": table,
        "seqused_k": int32(LENGTHS_K),
        "causal": True,
        "return_attn_probs": True,
    }
    result = attune.flash_attn_varlen_func(q, *in_wider_rows(*cache), *arguments, **options)
    assert_each_attends(result, q, k, v, lengths_q=lengths_q, causal=True)
    with pytest.raises(ValueError, match=f"k has head_dim {head_dim} and a stride of"):
        attune.flash_attn_varlen_func(q, *cache, *arguments, **options)
    with pytest.raises(ValueError, match=f"v has head_dim {head_dim} and a stride of"):
        attune.flash_attn_varlen_func(q, *in_wider_rows(cache[0]), cache[1], *arguments, **options)


def test_equal_lengths_have_the_numbers_of_a_batch():
    q, k, v = (random_array((3, 40, 2, 64), "float16", seed) for seed in (1, 2, 3))
    flat = [x.reshape(120, 2, 64) for x in (q, k, v)]
    out = attune.flash_attn_varlen_func(*flat, *[int32([0, 40, 80, 120])] * 2, 40, 40, causal=True)
    assert_attends(out.reshape(q.shape), q, k, v, causal=True)


@any_queries
def test_a_given_output_is_written_and_returned(lengths_q):
    q, k, v, *where = problem(lengths_q=lengths_q)
    expected = attune.flash_attn_varlen_func(q, k, v, *where)
    wide = np.full((len(q), 4, 128), 7, "float16")
    out = wide[:, :, :64]
    assert attune.flash_attn_varlen_func(q, k, v, *where, out=out) is out
    assert out.tobytes() == expected.tobytes()
    assert (wide[:, :, 64:] == 7).all()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only; results are written to it"):
        attune.flash_attn_varlen_func(q, k, v, *where, out=out)


@any_queries
def test_heads_before_rows(lengths_q):
    q, k, v, *where = problem(lengths_q=lengths_q)
    q, k, v = (x.transpose(1, 0, 2).copy().transpose(1, 0, 2) for x in (q, k, v))
    result = attune.flash_attn_varlen_func(q, k, v, *where, return_attn_probs=True)
    assert_each_attends(result, q, k, v, lengths_q=lengths_q)


def test_rows_of_no_sequence_are_not_written():
    q, k, v, _, at_k, *longest = problem(lengths_q=SHORT_Q)
    out = np.full(q.shape, 7, q.dtype)
    attune.flash_attn_varlen_func(q, k, v, int32([2, 2, 7, 12, 13]), at_k, *longest, out=out)
    assert np.flatnonzero((out == 7).all(axis=(1, 2))).tolist() == [0, 1, 13]


CALLS = """
import numpy as np
import attune

def call(max_seqlen_q, heads_q=2, at_k=np.array([0, 10, 40], "int32"), **options):
    pages = "block_table" in options
    q = np.ones((20, heads_q, 64), "float16")
    k = np.ones((4, 16, 1, 64) if pages else (40, 1, 64), "float16")
    at_q = np.array([0, 15, 20], "int32")
    attune.flash_attn_varlen_func(q, k, k, at_q, at_k, max_seqlen_q, 30, **options)

used = np.array([9, 0], "int32")
call(8, causal=True, window_size=(3, 2), softcap=0.5, seqused_k=used)
call(7, heads_q=256)
call(6, seqused_k=used, block_table=np.array([[3, 0], [1, 2]], "int32"))
call(9)
call(5, heads_q=257)
"""


def test_few_queries_are_served_by_decode(tmp_path):
    record = tmp_path / "calls.jsonl"
    environment = os.environ | {"ATTUNE_RECORD": str(record)}
    subprocess.run([sys.executable, "-c", CALLS], check=True, env=environment)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    served = {line["seqlen_q"]: line["operation"] for line in lines}
    assert served == {8: "decode", 7: "decode", 6: "decode", 9: "prefill", 5: "prefill"}
    of = {line["seqlen_q"]: line for line in lines}
    assert (of[8]["packed_keys"], of[8]["total_k"], of[8]["total_q"]) == (True, 40, 20)
    assert (of[8]["window_left"], of[8]["window_right"], of[8]["softcap"]) == (3, 0, 0.5)
    assert (of[6]["page_size"], of[6]["pages"], of[6]["table_width"]) == (16, 4, 2)
    assert "packed_keys" not in of[6]


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
            {
                "block_table": CU_Q[:4, None],
                "k": K[:, None],
                "v": V[:, None],
                "cu_seqlens_k": None,
            },
            ValueError,
            "cu_seqlens_k and seqused_k are both None; with a block_table one of them says how many",
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
        (
            {"max_seqlen_q": 0},
            ValueError,
            "max_seqlen_q is 0, and q of (76, 4, 64) has rows; it must be at least the queries of",
        ),
        ({"cu_seqlens_q": CU_Q[:0]}, ValueError, "cu_seqlens_q has shape (0,); it must be (batch"),
        (
            {"seqused_q": CU_Q},
            ValueError,
            "seqused_q has shape (5,); with 4 sequences in cu_seqlens_q",
        ),
        ({"seqused_q": 3}, TypeError, "seqused_q is a int; it must be a numpy.ndarray, as q is"),
        ({"max_seqlen_q": 5, "max_seqlen_k": -1}, ValueError, "max_seqlen_k is -1"),
        ({"max_seqlen_q": 5, "softcap": -1}, ValueError, "softcap is -1"),
        ({"max_seqlen_q": 5, "causal": True, "window_size": (1, -2)}, ValueError, "right is -2"),
        ({"out": Q[:, :2]}, ValueError, "out has shape (76, 2, 64); it must be (76, 4, 64)"),
        ({"cu_seqlens_q": [0, 1]}, TypeError, "cu_seqlens_q is a list; it must be a numpy.ndarray"),
        ({"cu_seqlens_k": CU_K.astype("int64")}, TypeError, "cu_seqlens_k has dtype int64; it mus"),
        ({"max_seqlen_k": 2.5}, TypeError, "max_seqlen_k is a float; it must be an integer"),
        ({"window_size": 3}, TypeError, "window_size is 3; it must be (left, right), two integers"),
        (
            {"dropout_p": 0.5},
            ValueError,
            "rng_state is None; with dropout_p 0.5 it must be an array",
        ),
    ],
)
def test_mistakes_are_named(change, error, message):
    arguments = dict(zip(NAMES, problem())) | change
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_varlen_func(**arguments)
