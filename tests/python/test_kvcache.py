"""Attention to a cache: NumPy arrays in the emulator, and what is wrong with arguments."""

import re

import numpy as np
import pytest
from cached import LENGTHS, assert_attends, in_wider_rows, int32, paged, problem

import attune


def attend(*arrays, **options):
    return attune.flash_attn_with_kvcache(*arrays, return_softmax_lse=True, **options)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"heads_q": 6, "heads_kv": 2, "seqlen_q": 3}, {"causal": True}),
        ({"seqlen_q": 5}, {"causal": True, "window_size": (20, 40)}),
        ({"seqlen_q": 2}, {"window_size": [30, 1]}),
        ({"heads_q": 20, "heads_kv": 1, "head_dim": 40}, {"num_splits": 3}),
        ({"head_dim": 128}, {"num_splits": 1, "softmax_scale": 0.3}),
    ],
    ids=["plain", "causal", "window_and_causal", "window", "splits", "one_split"],
)
@pytest.mark.parametrize("page_size", [None, 16, 200])
def test_agrees_with_float64(dtype, sizes, options, page_size):
    q, k, v = problem(dtype, **sizes)
    options = options | {"cache_seqlens": int32(LENGTHS)}
    cache = (k, v)
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    result = attend(q, *cache, **options)
    assert_attends(
        result,
        *(q, k, v, LENGTHS),
        causal=options.get("causal", False),
        window=options.get("window_size", (-1, -1)),
        scale=options.get("softmax_scale"),
    )


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("num_splits", [0, 1, 3])
def test_ragged_queries_agree_with_float64(dtype, page_size, num_splits):
    q, k, v = problem(dtype, seqlen_q=5, heads_q=8)
    counts = (2, 5, 0, 1)
    starts = int32(np.cumsum((0, *counts)))
    ragged = np.concatenate([q[i, -count:] for i, count in enumerate(counts) if count > 0])
    options = {"cache_seqlens": int32(LENGTHS), "cu_seqlens_q": starts, "max_seqlen_q": 5}
    cache = (k, v)
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    out, lse = attend(ragged, *cache, causal=True, num_splits=num_splits, **options)
    assert out.shape == ragged.shape
    assert lse.shape == (8, sum(counts))
    # Queries stand at the end of their keys, however many there are.
    for i, count in enumerate(counts):
        if count > 0:
            rows = slice(starts[i], starts[i + 1])
            one = (out[rows][None], lse[:, rows][None])
            arrays = (ragged[rows][None], k[i : i + 1], v[i : i + 1])
            assert_attends(one, *arrays, LENGTHS[i : i + 1], causal=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seqlen_q": None}, "cu_seqlens_q and max_seqlen_q go together; one of them is None"),
        ({"cu_seqlens_q": None}, "q has shape (8, 4, 64); it must be (batch, seqlen_q, heads_q,"),
        ({"cu_seqlens_q": np.zeros(5)}, "cu_seqlens_q"),
        ({"max_seqlen_q": -1}, "seqlen_q is -1; it must be from 0 to"),
        ({"k": np.zeros((4, 1, 2, 64), "float16")}, "k is given with cu_seqlens_q; store_kvcache"),
        (
            {"cache_seqlens": int32([1, 2, 3])},
            "cache_seqlens has shape (3,); with 4 sequences in cu_seqlens_q it must be (batch,)",
        ),
    ],
)
def test_wrong_ragged_queries(change, message):
    _, k, v = problem()
    q = np.zeros((8, 4, 64), "float16")
    arguments = {"cu_seqlens_q": int32([0, 2, 4, 6, 8]), "max_seqlen_q": 2} | change
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        attend(q, k, v, **arguments)


def test_new_keys_by_position():
    q, k, v = problem()
    lengths = int32(LENGTHS) - int32([0, 1, 1, 1])
    caches = [(k.copy(), v.copy()) for _ in "ab"]
    new = k[:, :1] * np.float16(0.5), v[:, :1] * np.float16(2)
    named = attend(q, *caches[0], k=new[0], v=new[1], cache_seqlens=lengths)
    found = attend(q, *caches[1], *new, None, None, lengths)
    for one, other in zip((*found, *caches[1]), (*named, *caches[0])):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("head_dim", [59, 111, 1])
@pytest.mark.parametrize("page_size", [None, 16, 30])
@pytest.mark.parametrize("seqlen_q", [1, 3])
def test_a_cache_of_any_head_dim_is_read_in_place(dtype, head_dim, page_size, seqlen_q):
    q, k, v = problem(dtype, seqlen_q=seqlen_q, head_dim=head_dim)
    options = {"cache_seqlens": int32(LENGTHS), "causal": True}
    cache = (k, v)
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    result = attend(q, *in_wider_rows(*cache), **options)
    assert_attends(result, q, k, v, LENGTHS, causal=True)
    wider = attend(*in_wider_rows(q, *cache), **options)
    for one, other in zip(wider, result):
        assert one.tobytes() == other.tobytes()


def test_ragged_queries_of_any_head_dim_read_a_cache_in_place():
    q, k, v = problem(head_dim=59)
    *cache, table = paged(k, v, 16)
    options = {"cu_seqlens_q": int32([0, 1, 2, 3, 4]), "max_seqlen_q": 1}
    out, lse = attend(
        q[:, 0],
        *in_wider_rows(*cache),
        cache_seqlens=int32(LENGTHS),
        block_table=table,
        **options,
    )
    assert_attends((out[:, None], lse.T[..., None]), q, k, v, LENGTHS)


def test_rows_that_cannot_be_read_in_place_are_named():
    q, k, v = problem(head_dim=59)
    arrays = {"q": q, "k_cache": k, "v_cache": v}
    for name in ("k_cache", "v_cache"):
        wide = dict(zip(("k_cache", "v_cache"), in_wider_rows(k, v)))
        message = (
            f"{name} has head_dim 59 and a stride of 17700 elements; a cache is never copied, "
            "so that its strides must be multiples of 8: allocate it with 64 columns, "
            f"and pass {name}[..., :59]"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            attend(**arrays | wide | {name: arrays[name]})
    with pytest.raises(ValueError, match="out is given, and q has head_dim 59; out is written"):
        attend(q, *in_wider_rows(k, v), out=q.copy())


def test_cache_batch_idx_picks_rows_of_a_block_table():
    q, k, v = problem()
    *cache, table = paged(k, v, 16)
    index = int32([3, 0, 3, 1])
    lengths = int32([150, 65, 1, 0])
    options = {"cache_seqlens": lengths, "block_table": table}
    result = attend(q, *cache, cache_batch_idx=index, **options)
    assert_attends(result, q, k[index], v[index], lengths)
    wild = attend(q, *cache, cache_batch_idx=int32([9, 0, 3, -7]), **options)
    assert_attends(wild, q, k[[3, 0, 3, 0]], v[[3, 0, 3, 0]], lengths)


@pytest.mark.parametrize(("given", "length"), [(None, 150), (70, 70), (np.int64(1), 1), (0, 0)])
@pytest.mark.parametrize("page_size", [None, 30])
def test_one_length_for_all(given, length, page_size):
    q, k, v = problem()
    cache, options = (k, v), {}
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    result = attend(q, *cache, cache_seqlens=given, **options)
    assert_attends(result, q, k, v, [length] * len(LENGTHS))


def test_tables_are_checked_where_asked_for():
    q, k, v = problem()
    k_pages, v_pages, table = paged(k, v, 16)
    options = {"cache_seqlens": int32(LENGTHS), "block_table": table, "check_tables": True}
    assert_attends(attend(q, k_pages, v_pages, **options), q, k, v, LENGTHS)
    table[3, 2] = len(k_pages)
    with pytest.raises(
        ValueError, match=f"batch 3, position 2 is {len(k_pages)}; it must be from 0 to"
    ):
        attend(q, k_pages, v_pages, **options)
    attend(q, k_pages, v_pages, **options | {"check_tables": False})


def test_output_alone_has_the_same_bits():
    q, k, v = problem()
    lengths = int32(LENGTHS)
    out, _ = attend(q, k, v, cache_seqlens=lengths)
    again = attune.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths)
    assert isinstance(again, np.ndarray)
    assert again.tobytes() == out.tobytes()


LEFTPAD = (0, 1, 40, 149)  # none, all of it, and up to the last key


def padded_at_the_left(q, k, v):
    """The same with NaN in front of each sequence's first key; and keys and values as they are without."""
    given, moved = ([x.copy() for x in (k, v)] for _ in range(2))
    for sequence, pad in enumerate(LEFTPAD):
        for padded, plain in zip(given, moved):
            padded[sequence, :pad] = np.nan
            plain[sequence, : plain.shape[1] - pad] = padded[sequence, pad:]
    return q, *given, moved


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window_size": (20, 1), "num_splits": 2}]
)
def test_keys_in_front_of_a_left_pad_do_not_exist(dtype, page_size, options):
    q, k, v, moved = padded_at_the_left(*problem(dtype, seqlen_q=3))
    cache, where = (k, v), {}
    if page_size is not None:
        *cache, table = paged(k, v, page_size)
        table[3, : 149 // page_size] = -1  # pages of no key
        where["block_table"] = table
    leftpad = int32(LEFTPAD)
    named = options | where | {"cache_seqlens": int32(LENGTHS), "cache_leftpad": leftpad}
    result = attend(q, *cache, **named, check_tables=True)
    asked = {"window" if name == "window_size" else name: options[name] for name in options}
    asked.pop("num_splits", None)
    assert_attends(result, q, *moved, [n - pad for n, pad in zip(LENGTHS, LEFTPAD)], **asked)
    if page_size is None:  # without lengths all that there is room for
        result = attend(q, *cache, **options, cache_leftpad=leftpad)
        assert_attends(result, q, *moved, [150 - pad for pad in LEFTPAD], **asked)


def test_a_left_pad_behind_the_keys_is_named_where_asked_for():
    q, k, v = problem()
    options = {"cache_seqlens": int32(LENGTHS), "cache_leftpad": int32([0, 0, 66, 0])}
    with pytest.raises(ValueError, match="leftpad_k: batch 2, position 0 is 66; it must be from 0"):
        attend(q, k, v, check_tables=True, **options)
    assert_attends(attend(q, k, v, **options), q, k, v, (0, 1, 0, 150))


def test_splits_make_a_sequence_independent_of_the_others():
    q, k, v = problem()
    lengths = int32(LENGTHS)
    out, _ = attend(q, k, v, cache_seqlens=lengths, num_splits=2)
    alone, _ = attend(q[2:3], k[2:3], v[2:3], cache_seqlens=lengths[2:3], num_splits=2)
    assert alone.tobytes() == out[2:3].tobytes()


def test_sequences_anywhere_in_a_larger_cache():
    q, k, v = problem()
    index = int32([3, 0, 2])
    result = attend(q[:3], k, v, cache_seqlens=int32([150, 9, 65]), cache_batch_idx=index)
    assert_attends(result, q[:3], k[index], v[index], [150, 9, 65])
    result = attend(q[:3], k, v, cache_seqlens=int32([150, 9, 65]))
    assert_attends(result, q[:3], k[:3], v[:3], [150, 9, 65])


def test_columns_of_a_wider_table():
    q, k, v = problem()
    *cache, table = paged(k, v, 16)
    wide = np.full((len(table), 20), -1, np.int32)
    wide[:, 3 : 3 + table.shape[1]] = table
    columns = wide[:, 3 : 3 + table.shape[1]]
    result = attend(q, *cache, cache_seqlens=int32(LENGTHS), block_table=columns)
    assert_attends(result, q, k, v, LENGTHS)
    result = attend(q, *cache, block_table=wide[:, 3:4])
    assert_attends(result, q, k, v, [16] * len(LENGTHS))


def test_heads_before_tokens():
    q, k, v = problem()
    cache = [x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for x in (k, v)]
    assert_attends(attend(q, *cache), q, k, v, [150] * len(LENGTHS))


def test_lengths_beyond_the_cache_count_as_its_room():
    q, k, v = problem()
    result = attend(q, k, v, cache_seqlens=int32([-5, 1000, 150, 3]))
    assert_attends(result, q, k, v, [0, 150, 150, 3])


def test_a_given_output_is_written_and_returned():
    q, k, v = problem(seqlen_q=2)
    expected = attune.flash_attn_with_kvcache(q, k, v)
    out = np.full((4, 4, 2, 64), 7, "float16").transpose(0, 2, 1, 3)
    assert attune.flash_attn_with_kvcache(q, k, v, out=out) is out
    assert out.tobytes() == expected.tobytes()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only; results are written to it"):
        attune.flash_attn_with_kvcache(q, k, v, out=out)


Q, K, V = problem()
SEQLENS = int32(LENGTHS)
TABLE = np.zeros((4, 10), np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": [1.0]}, "q is a list; it must be a PyTorch CUDA tensor, a CuPy, JAX or NumPy array"),
        ({"q": Q.astype("float32")}, "q has dtype float32; it must be float16 or bfloat16"),
        ({"k_cache": None}, "k_cache is a NoneType; it must be a numpy.ndarray, as q is"),
        ({"v_cache": V.astype("float32")}, "v_cache has dtype float32; it must be float16, as q"),
        ({"cache_seqlens": [1, 2]}, "cache_seqlens is a list; it must be an integer, a numpy.nd"),
        (
            {"cache_seqlens": 1.5},
            "cache_seqlens is a float; it must be an integer, a numpy.ndarray",
        ),
        (
            {"cache_seqlens": SEQLENS.astype("int64")},
            "cache_seqlens has dtype int64; it must be int32",
        ),
        ({"block_table": TABLE.astype("u4")}, "block_table has dtype uint32; it must be int32"),
        ({"block_table": 3}, "block_table is a int; it must be a numpy.ndarray, as q is"),
        ({"cache_batch_idx": (0, 1)}, "cache_batch_idx is a tuple; it must be a numpy.ndarray"),
        ({"cache_leftpad": [0]}, "cache_leftpad is a list; it must be a numpy.ndarray, as q is"),
        ({"cache_leftpad": SEQLENS.astype("int64")}, "cache_leftpad has dtype int64; it must be"),
        ({"window_size": 5}, "window_size is 5; it must be (left, right), two integers"),
        ({"window_size": (1, 2, 3)}, "window_size is (1, 2, 3); it must be (left, right), two"),
        (
            {"window_size": (1.0, 0)},
            "window_size is a float; it must be (left, right), two integers",
        ),
        ({"num_splits": None}, "num_splits is a NoneType; it must be an integer"),
        ({"softmax_scale": "1"}, "softmax_scale is a str; it must be a number"),
        ({"out": Q.astype("float32")}, "out has dtype float32; it must be float16, as q is"),
    ],
)
def test_wrong_types(change, message):
    arguments = {"q": Q, "k_cache": K, "v_cache": V} | change
    with pytest.raises(TypeError, match=re.escape(message)):
        attune.flash_attn_with_kvcache(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": Q[0]}, "q has shape (1, 4, 64); it must be (batch, seqlen_q, heads_q, head_dim)"),
        (
            {"k_cache": K[0]},
            "k_cache has shape (150, 2, 64); it must be (batch_cache, seqlen_cache, heads_kv, head",
        ),
        (
            {"k_cache": K[0], "block_table": TABLE},
            "k_cache has shape (150, 2, 64); it must be (blocks, page_size, heads_kv, head_dim)",
        ),
        ({"k_cache": K[:, :, :0]}, "k_cache has shape (4, 150, 0, 64); heads and head_dim must be"),
        (
            {"k_cache": K[..., :32]},
            "k_cache has shape (4, 150, 2, 32); with q of (4, 1, 4, 64) its head_dim must be 64",
        ),
        (
            {"v_cache": V[:, :99]},
            "v_cache has shape (4, 99, 2, 64); it must be (4, 150, 2, 64), as k_cache is",
        ),
        ({"q": Q[:, :, :3]}, "k_cache has 2 heads; they must divide the 3 heads of q"),
        (
            {"k_cache": K[:3], "v_cache": V[:3]},
            "k_cache has 3 sequences; without cache_batch_idx or block_table it must have at least",
        ),
        (
            {"cache_seqlens": SEQLENS[:3]},
            "cache_seqlens has shape (3,); with 4 sequences in q it must be (batch,)",
        ),
        (
            {"cache_batch_idx": SEQLENS[:, None]},
            "cache_batch_idx has shape (4, 1); with 4 sequences in q it must be (batch,)",
        ),
        (
            {"block_table": TABLE[:2]},
            "block_table has shape (2, 10); with 4 sequences in q it must be (batch, blocks)",
        ),
        (
            {"cache_seqlens": np.zeros(8, np.int32)[::2]},
            "cache_seqlens has a stride of 2 elements in its last dimension; it must be contiguous",
        ),
        (
            {"block_table": np.broadcast_to(TABLE[0], TABLE.shape)},
            "block_table has rows 0 elements apart; its 10 columns must not overlap",
        ),
        (
            {"cache_batch_idx": SEQLENS, "block_table": TABLE[:0]},
            "block_table has no rows; cache_batch_idx must name one for each sequence",
        ),
        (
            {"cache_seqlens": 151},
            "cache_seqlens is 151; it must be from 0 to 150, which the cache has room for",
        ),
        ({"cache_seqlens": -1}, "cache_seqlens is -1; it must be from 0 to 150"),
        ({"num_splits": 257}, "splits is 257; it must be from 0 to 256"),
        ({"num_splits": 2**31}, "num_splits is 2147483648; it must fit 32 bits"),
        ({"num_splits": 10**30}, "num_splits is 1000000000000000000000000000000; it must fit 32"),
        ({"window_size": (-2, 0)}, "window_left is -2; it must be from -1 to"),
        ({"softmax_scale": -1.0}, "softmax_scale is -1; it must be from 0 to 1.8446744e+19"),
        ({"out": Q[:3]}, "out has shape (3, 1, 4, 64); it must be (4, 1, 4, 64), as q is"),
        (
            {"out": np.broadcast_to(Q[:1], Q.shape).view()},
            "out is read-only; results are written to it",
        ),
        (
            {"q": np.zeros((4, 1, 514, 64), "float16")},
            "heads_q is 514; it must be at most 256 times heads_kv, which is 2",
        ),
    ],
)
def test_wrong_values(change, message):
    arguments = {"q": Q, "k_cache": K, "v_cache": V} | change
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_with_kvcache(**arguments)
