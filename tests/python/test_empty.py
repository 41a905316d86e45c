"""Extents of 0: results without rows, and rows without keys, which are zeros with an LSE of -inf."""

import numpy as np
import pytest
from conftest import random_array

import attune


def rows(*shape):
    return random_array(shape, "float16", 1)


def int32(*values):
    return np.array(values, np.int32)


def assert_nothing(result, shape, lse_shape):
    """(out, lse, ...): zeros and -inf, where there are rows."""
    out, lse, *_ = result
    assert out.shape == shape
    assert lse.shape == lse_shape
    assert not out.any()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize(("batch", "seqlen_q", "seqlen_k"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_of_a_batch(batch, seqlen_q, seqlen_k):
    q, k = rows(batch, seqlen_q, 4, 64), rows(batch, seqlen_k, 2, 64)
    shapes = q.shape, (batch, 4, seqlen_q)
    assert_nothing(attune.flash_attn_func(q, k, k, return_attn_probs=True), *shapes)
    kv = np.stack([k, k], 2)
    assert_nothing(attune.flash_attn_kvpacked_func(q, kv, return_attn_probs=True), *shapes)


def test_without_keys_values_of_another_head_dim_give_zeros():
    q, k, v = rows(2, 3, 4, 192), rows(2, 0, 2, 192), rows(2, 0, 2, 128)
    result = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    assert_nothing(result, (2, 3, 4, 128), (2, 4, 3))
    starts = int32(0, 3, 6), int32(0, 0, 0)
    result = attune.flash_attn_varlen_func(
        q.reshape(6, 4, 192), k[0], v[0], *starts, 9, 5, return_attn_probs=True
    )
    assert_nothing(result, (6, 4, 128), (4, 6))


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 3), (2, 0)])
def test_of_a_packed_batch(batch, seqlen):
    qkv = rows(batch, seqlen, 3, 2, 64)
    result = attune.flash_attn_qkvpacked_func(qkv, return_attn_probs=True)
    assert_nothing(result, (batch, seqlen, 2, 64), (batch, 2, seqlen))


@pytest.mark.parametrize("longest", [8, 9])  # of decode and of prefill
@pytest.mark.parametrize(
    ("total_q", "total_k", "at_q", "at_k"),
    [
        (0, 5, int32(0, 0, 0), int32(0, 2, 5)),
        (7, 0, int32(0, 3, 7), int32(0, 0, 0)),
        (0, 0, int32(0), int32(0)),
    ],
    ids=["queries", "keys", "batch"],
)
def test_of_a_ragged_batch(total_q, total_k, at_q, at_k, longest):
    q, k = rows(total_q, 4, 64), rows(total_k, 2, 64)
    options = {"return_attn_probs": True}
    shapes = q.shape, (4, total_q)
    where = (at_q, at_k, longest, 5)
    assert_nothing(attune.flash_attn_varlen_func(q, k, k, *where, **options), *shapes)
    kv = np.stack([k, k], 1)
    assert_nothing(attune.flash_attn_varlen_kvpacked_func(q, kv, *where, **options), *shapes)


@pytest.mark.parametrize("longest", [8, 9])
@pytest.mark.parametrize(("blocks", "page_size", "columns"), [(0, 4, 2), (3, 0, 2), (3, 4, 0)])
def test_of_a_cache_in_pages(blocks, page_size, columns, longest):
    q, k = rows(7, 4, 64), rows(blocks, page_size, 2, 64)
    table = np.zeros((2, columns), np.int32)
    at_q, at_k = int32(0, 3, 7), int32(0, 3, 5)
    result = attune.flash_attn_varlen_func(
        *(q, k, k, at_q, at_k, longest, 4), block_table=table, return_attn_probs=True
    )
    assert_nothing(result, q.shape, (4, 7))
    one = rows(2, 1, 4, 64)
    result = attune.flash_attn_with_kvcache(
        *(one, k, k), cache_seqlens=int32(3, 2), block_table=table, return_softmax_lse=True
    )
    assert_nothing(result, one.shape, (2, 4, 1))


@pytest.mark.parametrize(("batch", "seqlen_q", "room"), [(0, 1, 16), (2, 0, 16), (2, 1, 0)])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("num_splits", [0, 2])
def test_of_a_cache(batch, seqlen_q, room, given, num_splits):
    q, k = rows(batch, seqlen_q, 4, 64), rows(batch, room, 2, 64)
    lengths = np.full(batch, 9, np.int32) if given else None
    options = {"num_splits": num_splits, "return_softmax_lse": True}
    result = attune.flash_attn_with_kvcache(q, k, k, cache_seqlens=lengths, **options)
    assert_nothing(result, q.shape, (batch, 4, seqlen_q))


def test_new_keys_of_none():
    q, k = rows(2, 1, 4, 64), rows(2, 16, 2, 64)
    expected = attune.flash_attn_with_kvcache(q, k, k)
    assert (
        attune.flash_attn_with_kvcache(q, k, k, k[:, :0], k[:, :0]).tobytes() == expected.tobytes()
    )


def test_new_keys_are_stored_without_queries():
    q, k, new = rows(2, 0, 4, 64), rows(2, 16, 2, 64), rows(2, 1, 2, 64) * np.float16(3)
    cache = k.copy(), k.copy()
    attune.flash_attn_with_kvcache(q, *cache, new, new, cache_seqlens=int32(4, 15))
    assert (cache[0][[0, 1], [4, 15]] == new[:, 0]).all()
    assert (cache[1][[0, 1], [4, 15]] == new[:, 0]).all()


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((0, 2, 64), {"slot_mapping": np.zeros(0, np.int64)}),
        ((6, 2, 64), {"slot_mapping": np.zeros(0, np.int32)}),
        ((2, 0, 2, 64), {"slot_mapping": np.zeros((2, 0), np.int64)}),
        ((2, 0, 2, 64), {}),
        ((0, 3, 2, 64), {"cache_seqlens": np.zeros(0, np.int32)}),
        ((2, 3, 2, 64), {"block_table": np.zeros((2, 0), np.int32)}),
    ],
)
def test_nothing_to_store_writes_nothing(shape, options):
    cache = [np.full((2, 16, 2, 64), 7, "float16") for _ in "kv"]
    attune.store_kvcache(rows(*shape), rows(*shape), *cache, **options)
    assert (cache[0] == 7).all()
    assert (cache[1] == 7).all()


@pytest.mark.parametrize(("shape", "lse"), [((0, 3, 2, 64), (0, 2, 3)), ((0, 2, 64), (2, 0))])
def test_of_states(shape, lse):
    o, lses = np.zeros(shape, "float16"), np.zeros(lse, "float32")
    assert_nothing(attune.merge_attn_states(o, lses, o, lses, return_lse=True), shape, lse)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (int32(0, 0, 3), "max_seqlen_q is 0, and q of \\(3, 4, 64\\) has rows"),
        (int32(), "cu_seqlens_q has shape \\(0,\\); it must be \\(batch \\+ 1,\\)"),
    ],
)
def test_rows_that_no_launch_would_write_are_refused(starts, message):
    q, k = rows(3, 4, 64), rows(2, 16, 2, 64)
    with pytest.raises(ValueError, match=message):
        attune.flash_attn_with_kvcache(q, k, k, cu_seqlens_q=starts, max_seqlen_q=0)
