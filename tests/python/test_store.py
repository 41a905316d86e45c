"""Writing into a cache, and merging results: NumPy arrays in the emulator, and what is wrong with arguments."""

import re

import numpy as np
import pytest
from cached import int32, problem
from conftest import random_array, reference

import attune

HEAD_DIM = 64


def new(tokens=3, batch=2, heads=2, dtype="float16"):
    return [random_array((batch, tokens, heads, HEAD_DIM), dtype, seed) for seed in (1, 2)]


def caches(pages=6, page_size=4, heads=2, dtype="float16"):
    return [np.full((pages, page_size, heads, HEAD_DIM), 7, dtype) for _ in "kv"]


def int64(values):
    return np.array(values, np.int64)


def angles(rotations=32, rotary_dim=32, dtype="float16"):
    turns = np.arange(rotations)[:, None] * 10000.0 ** (-np.arange(rotary_dim // 2) / rotary_dim)
    return np.cos(turns).astype(dtype), np.sin(turns).astype(dtype)


def rotated(k, cos, sin, positions, interleaved):
    """float64; `positions` has an entry for each token."""
    half = cos.shape[1]
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    c, s = (x[positions][..., None, :].astype(np.float64) for x in (cos, sin))
    result = k.astype(np.float64)
    x, y = result[..., first].copy(), result[..., second].copy()
    result[..., first], result[..., second] = x * c - y * s, x * s + y * c
    return result


def assert_rotated(found, exact):
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2e-3, atol=2e-3)


def test_behind_the_keys_of_each_sequence(dtype):
    k, v = new(dtype=dtype)
    k_cache, v_cache = caches(pages=3, page_size=9, dtype=dtype)
    assert attune.store_kvcache(k, v, k_cache, v_cache, cache_seqlens=int32([5, 0])) is None
    for cache, stored in ((k_cache, k), (v_cache, v)):
        expected = np.full_like(cache, 7)
        expected[0, 5:8], expected[1, :3] = stored
        assert cache.tobytes() == expected.tobytes()


def test_slots_are_checked_where_asked_for():
    k, v = new(tokens=1)
    k_cache, v_cache = caches()
    slots = int64([[-1], [24]])
    with pytest.raises(
        ValueError, match="slot_mapping: batch 1, position 0 is 24; it must be -1, or from 0 to 23"
    ):
        attune.store_kvcache(k, v, k_cache, v_cache, slot_mapping=slots, check_tables=True)
    assert (k_cache == 7).all()
    attune.store_kvcache(k, v, k_cache, v_cache, slot_mapping=slots)
    assert (k_cache == 7).all()


def test_rows_of_any_head_dim_keep_what_is_behind_their_columns():
    k, v = (x[..., :59] for x in new())
    k_cache, v_cache = caches(pages=2, page_size=9)
    attune.store_kvcache(
        *(k.copy(), v.copy(), k_cache[..., :59], v_cache[..., :59]), cache_seqlens=int32([5, 0])
    )
    for cache, stored in ((k_cache, k), (v_cache, v)):
        expected = np.full_like(cache, 7)
        expected[0, 5:8, :, :59], expected[1, :3, :, :59] = stored
        assert cache.tobytes() == expected.tobytes()
    message = "k_cache has head_dim 59 and a stride of 1062 elements; a cache is never copied"
    with pytest.raises(ValueError, match=message):
        attune.store_kvcache(k, v, k_cache[..., :59].copy(), v_cache[..., :59])


def test_in_pages_of_a_table():
    k, v = new()
    k_cache, v_cache = caches()
    table = int32([[9, 5, 1, 9], [9, 2, 0, 9]])[:, 1:3]
    attune.store_kvcache(k, v, k_cache, v_cache, cache_seqlens=int32([3, 1]), block_table=table)
    for cache, stored in ((k_cache, k), (v_cache, v)):
        expected = np.full_like(cache, 7)
        expected[5, 3], expected[1, :2], expected[2, 1:4] = stored[0, 0], stored[0, 1:], stored[1]
        assert cache.tobytes() == expected.tobytes()


def test_sequences_anywhere_in_a_larger_cache():
    k, v = new()
    k_cache, v_cache = caches()
    attune.store_kvcache(k, v, k_cache, v_cache, cache_batch_idx=int32([4, 2]))
    assert (k_cache[[4, 2], :3] == k).all()
    assert (v_cache[[4, 2], :3] == v).all()
    assert (k_cache[[0, 1, 3, 5]] == 7).all()


@pytest.mark.parametrize("integers", [np.int64, np.int32])
@pytest.mark.parametrize("page_size", [1, 4])
def test_by_slots(page_size, integers):
    k, v = (x.reshape(6, 2, HEAD_DIM) for x in new())
    k_cache, v_cache = caches(pages=24 // page_size, page_size=page_size)
    slots = np.array([17, -1, 3, 24, 0], integers)  # the sixth token is padding
    attune.store_kvcache(k, v, k_cache, v_cache, slot_mapping=slots)
    for cache, stored in ((k_cache, k), (v_cache, v)):
        rows = cache.reshape(24, 2, HEAD_DIM)
        assert (rows[[17, 3, 0]] == stored[[0, 2, 4]]).all()
        assert (np.delete(rows, [17, 3, 0], axis=0) == 7).all()


def test_keys_and_values_of_one_buffer():
    k, v = (x.reshape(6, 2, HEAD_DIM) for x in new())
    buffer = np.full((10, 1, 4, HEAD_DIM), 7, "float16")
    attune.store_kvcache(
        k, v, buffer[:, :, :2], buffer[:, :, 2:], slot_mapping=int64([9, 1, 2, 3, 4, 5])
    )
    assert (buffer[[9, 1, 2, 3, 4, 5], 0] == np.concatenate([k, v], 1)).all()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("given", [False, True])
def test_keys_are_rotated(dtype, interleaved, given):
    k, v = new(dtype=dtype)
    k_cache, v_cache = caches(pages=2, page_size=12, dtype=dtype)
    cos, sin = angles(dtype=dtype)
    positions = int32([[3, 0, 31], [9, 9, 4]]) if given else int32([[6, 7, 8], [2, 3, 4]])
    attune.store_kvcache(
        *(k, v, k_cache, v_cache),
        cache_seqlens=int32([6, 2]),
        positions=positions if given else None,
        rotary_cos=cos,
        rotary_sin=sin,
        rotary_interleaved=interleaved,
    )
    exact = rotated(k, cos, sin, positions, interleaved)
    tolerance = 2e-3 if dtype.name == "float16" else 2e-2
    for sequence, first in enumerate((6, 2)):
        found = k_cache[sequence, first : first + 3].astype(np.float64)
        np.testing.assert_allclose(found, exact[sequence], rtol=tolerance, atol=tolerance)
        assert (v_cache[sequence, first : first + 3] == v[sequence]).all()


def test_slots_and_positions_of_rows():
    k, v = (x.reshape(6, 2, HEAD_DIM) for x in new())
    k_cache, v_cache = caches()
    cos, sin = angles()
    positions = int32([3, 1, 4, 1, 5, 9])
    attune.store_kvcache(
        *(k, v, k_cache, v_cache),
        slot_mapping=int64(range(6)),
        positions=positions,
        rotary_cos=cos,
        rotary_sin=sin,
    )
    found = k_cache.reshape(24, 2, HEAD_DIM)[:6].astype(np.float64)
    np.testing.assert_allclose(found, rotated(k, cos, sin, positions, True), rtol=2e-3, atol=2e-3)


def test_what_was_stored_is_attended_to():
    q, k, v = problem(seqlen_q=3)
    lengths = int32([0, 1, 65, 140])
    stored = [np.zeros_like(x) for x in (k, v)]
    for cache, whole in zip(stored, (k, v)):
        for sequence, length in enumerate(lengths):
            cache[sequence, :length] = whole[sequence, :length]
    rows = np.arange(4)[:, None], lengths[:, None] + np.arange(3)
    attune.store_kvcache(k[rows], v[rows], *stored, cache_seqlens=lengths)
    options = {"cache_seqlens": lengths + int32(3), "causal": True}
    out = attune.flash_attn_with_kvcache(q, *stored, **options)
    assert out.tobytes() == attune.flash_attn_with_kvcache(q, k, v, **options).tobytes()


K, V = new()
K_CACHE, V_CACHE = caches()
ROWS = K.reshape(6, 2, HEAD_DIM)
COS, SIN = angles()
SLOTS = int64([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"k": ROWS, "v": ROWS},
            ValueError,
            "k has shape (6, 2, 64); it must be (batch, tokens, heads_kv, head_dim), without slot_m",
        ),
        (
            {"k": K[0, 0], "slot_mapping": SLOTS},
            ValueError,
            "k has shape (2, 64); it must be (batch, tokens, heads_kv, head_dim) or (tokens, heads",
        ),
        ({"v": V[:, :2]}, ValueError, "v has shape (2, 2, 2, 64); it must be (2, 3, 2, 64), as k"),
        ({"k_cache": K_CACHE[..., :32]}, ValueError, "k_cache has shape (6, 4, 2, 32); with k of"),
        ({"v_cache": V_CACHE[:3]}, ValueError, "v_cache has shape (3, 4, 2, 64); it must be (6, 4"),
        (
            {"k_cache": K_CACHE[:, :, :1], "v_cache": V_CACHE[:, :, :1]},
            ValueError,
            "k_cache has 1 heads; it must have the 2 of k",
        ),
        (
            {"slot_mapping": SLOTS[0]},
            ValueError,
            "slot_mapping has shape (3,); with k of (2, 3, 2, 64) it must be (2, 3)",
        ),
        (
            {"k": ROWS, "v": ROWS, "slot_mapping": int64(range(7))},
            ValueError,
            "slot_mapping has 7 tokens; it must have at most the 6 of k",
        ),
        (
            {"slot_mapping": np.zeros((2, 4), np.int64)[:, :3]},
            ValueError,
            "slot_mapping has a stride of 4 elements in dimension 0; it must be contiguous, so that",
        ),
        (
            {"slot_mapping": SLOTS, "block_table": int32([[0], [1]])},
            ValueError,
            "slot_mapping and block_table are both given; slot_mapping alone names the places",
        ),
        ({"cache_seqlens": int32([1])}, ValueError, "cache_seqlens has shape (1,); with 2 sequen"),
        (
            {"rotary_cos": COS},
            ValueError,
            "rotary_cos and rotary_sin go together; one of them is N",
        ),
        (
            {"positions": int32([[0] * 3] * 2)},
            ValueError,
            "positions is given without rotary_cos and rotary_sin",
        ),
        (
            {"rotary_cos": COS, "rotary_sin": SIN[:5]},
            ValueError,
            "rotary_sin has shape (5, 16); it must be (32, 16), as rotary_cos is",
        ),
        (
            {"rotary_cos": COS[:, :12].copy(), "rotary_sin": SIN[:, :12].copy()},
            ValueError,
            "rotary_dim is 24; it must be a multiple of 16",
        ),
        (
            {"slot_mapping": SLOTS.astype("int16")},
            TypeError,
            "slot_mapping has dtype int16; it must be int64 or int32",
        ),
        ({"cache_seqlens": 3}, TypeError, "cache_seqlens is a int; it must be a numpy.ndarray"),
        (
            {"rotary_cos": COS.astype("float32"), "rotary_sin": SIN},
            TypeError,
            "rotary_cos has dtype float32; it must be float16",
        ),
    ],
)
def test_mistakes_are_named(change, error, message):
    arguments = {"k": K, "v": V, "k_cache": K_CACHE, "v_cache": V_CACHE} | change
    with pytest.raises(error, match=re.escape(message)):
        attune.store_kvcache(**arguments)


def test_a_cache_that_is_read_only_is_refused():
    k_cache, v_cache = caches()
    v_cache.flags.writeable = False
    with pytest.raises(ValueError, match="v_cache is read-only; results are written to it"):
        attune.store_kvcache(*new(), k_cache, v_cache)


# Merging


def halves(dtype="float16"):
    """Attention of q to the first and to the other keys, and exactly to all of them."""
    q, k, v = (random_array((2, 20, 4, HEAD_DIM), dtype, seed) for seed in (1, 2, 3))
    parts = [slice(0, 7), slice(7, 20)]
    results = [
        attune.flash_attn_func(q, k[:, at], v[:, at], return_attn_probs=True)[:2] for at in parts
    ]
    return *results[0], *results[1], *reference(q, k, v)


def test_halves_make_the_whole(dtype):
    *states, exact, exact_lse = halves(dtype)
    out, lse = attune.merge_attn_states(*states, return_lse=True)
    tolerance = 2e-3 if dtype.name == "float16" else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)
    alone = attune.merge_attn_states(*states)
    assert isinstance(alone, np.ndarray)
    assert alone.tobytes() == out.tobytes()


def test_rows_of_all_sequences():
    o1, lse1, o2, lse2, _, _ = halves()
    out, lse = attune.merge_attn_states(o1, lse1, o2, lse2, return_lse=True)
    rows = [x.reshape(40, 4, HEAD_DIM) for x in (o1, o2)]
    lses = [x.swapaxes(0, 1).reshape(4, 40).copy() for x in (lse1, lse2)]
    flat, flat_lse = attune.merge_attn_states(rows[0], lses[0], rows[1], lses[1], return_lse=True)
    assert flat.tobytes() == out.tobytes()
    assert (flat_lse == lse.swapaxes(0, 1).reshape(4, 40)).all()


def test_what_saw_no_key_is_not_read():
    o1, lse1, o2, lse2, _, _ = halves()
    lse1[:] = -np.inf
    o1[:] = np.nan
    out, lse = attune.merge_attn_states(o1, lse1, o2, lse2, return_lse=True)
    assert (out == o2).all()
    assert (lse == lse2).all()


def test_results_may_be_merged_in_place():
    o1, lse1, o2, lse2, _, _ = halves()
    expected = attune.merge_attn_states(o1, lse1, o2, lse2)
    assert attune.merge_attn_states(o1, lse1, o2, lse2, out=o1) is o1
    assert o1.tobytes() == expected.tobytes()


O = np.zeros((2, 20, 4, HEAD_DIM), "float16")
LSE = np.zeros((2, 4, 20), "float32")
STATES = {"o1": O, "lse1": LSE, "o2": O, "lse2": LSE}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"o1": STATES["o1"][0, 0]}, ValueError, "o1 has shape (4, 64); it must be (batch, seqlen"),
        ({"o2": STATES["o2"][:1]}, ValueError, "o2 has shape (1, 20, 4, 64); it must be (2, 20, 4"),
        (
            {"lse2": STATES["lse2"][:, :, :9]},
            ValueError,
            "lse2 has shape (2, 4, 9); with o2 of (2, 20, 4, 64) it must be (2, 4, 20)",
        ),
        (
            {"lse1": STATES["lse1"].swapaxes(1, 2).copy().swapaxes(1, 2)},
            ValueError,
            "lse1 has a stride of 4 elements in its last dimension; it must be contiguous",
        ),
        ({"lse1": STATES["o1"]}, TypeError, "lse1 has dtype float16; it must be float32"),
        ({"o2": None}, TypeError, "o2 is a NoneType; it must be a numpy.ndarray, as o1 is"),
    ],
)
def test_mistakes_of_a_merge_are_named(change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        attune.merge_attn_states(**STATES | change)
