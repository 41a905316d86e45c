"""New keys that flash_attn_with_kvcache writes into the cache first: NumPy arrays in the emulator, tensors on a GPU."""

import re

import numpy as np
import pytest
from cached import assert_attends, in_wider_rows, int32, paged, problem
from test_store import angles

import attune

STORED = (0, 1, 65, 140)
TOKENS = 3


def step(dtype="float16", page_size=None, heads_q=4, head_dim=64):
    """q, the cache, new keys and values, and how sequences lie in the cache."""
    q, k, v = problem(dtype, seqlen_q=TOKENS, heads_q=heads_q, head_dim=head_dim)
    rows = np.arange(len(q))[:, None], int32(STORED)[:, None] + np.arange(TOKENS)
    new = k[rows], v[rows]
    if page_size is None:
        return q, k, v, *new, {}
    *pools, table = paged(k, v, page_size)
    return q, *pools, *new, {"block_table": table}


def rotate(x, cos, sin, interleaved, positions):
    """As store_kvcache does it, whatever heads x has."""
    cache = np.zeros((x.shape[0], x.shape[1], *x.shape[2:]), x.dtype)
    attune.store_kvcache(
        *(x, x, cache, cache.copy()),
        positions=positions,
        rotary_cos=cos,
        rotary_sin=sin,
        rotary_interleaved=interleaved,
    )
    return cache


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 0.7, "num_splits": 2}])
def test_new_keys_are_stored_and_attended_to(dtype, page_size, options):
    q, k_cache, v_cache, k, v, where = step(dtype, page_size)
    named = options | where
    stored = [x.copy() for x in (k_cache, v_cache)]
    attune.store_kvcache(k, v, *stored, cache_seqlens=int32(STORED), **where)
    expected = attune.flash_attn_with_kvcache(
        q, *stored, cache_seqlens=int32(STORED) + int32(TOKENS), **named
    )
    found = attune.flash_attn_with_kvcache(
        q, k_cache, v_cache, k=k, v=v, cache_seqlens=int32(STORED), **named
    )
    assert k_cache.tobytes() == stored[0].tobytes()
    assert v_cache.tobytes() == stored[1].tobytes()
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("rotary_dim", [0, 48])
@pytest.mark.parametrize("wide", [False, True])
def test_new_keys_of_any_head_dim_leave_what_is_behind_the_columns_of_a_cache(
    page_size, rotary_dim, wide
):
    q, k_cache, v_cache, k, v, where = step(page_size=page_size, head_dim=59)
    caches = in_wider_rows(k_cache, v_cache)
    if wide:
        k, v = in_wider_rows(k, v)
    if rotary_dim > 0:
        where["rotary_cos"], where["rotary_sin"] = angles(200, rotary_dim)
    expected = [np.full((*x.shape[:-1], 64), 0, x.dtype) for x in caches]
    for padded, cache in zip(expected, caches):
        padded[..., :59] = cache
    pad = ((0, 0), (0, 0), (0, 0), (0, 5))
    out = attune.flash_attn_with_kvcache(
        *(np.pad(q, pad), *expected, np.pad(k, pad), np.pad(v, pad)),
        cache_seqlens=int32(STORED),
        causal=True,
        softmax_scale=59**-0.5,
        **where,
    )
    found = attune.flash_attn_with_kvcache(
        q, *caches, k, v, cache_seqlens=int32(STORED), causal=True, **where
    )
    np.testing.assert_allclose(found, out[..., :59], rtol=2e-3, atol=2e-3)
    for padded, cache in zip(expected, caches):
        assert cache.tobytes() == padded[..., :59].tobytes()
        assert np.isnan(cache.base[..., 59:]).all()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (30, -1)}])
def test_new_keys_and_queries_are_rotated(interleaved, options):
    q, k_cache, v_cache, k, v, _ = step(heads_q=2)
    cos, sin = angles(rotations=160)
    positions = int32(STORED)[:, None] + np.arange(TOKENS, dtype=np.int32)
    of_queries = positions if options else np.repeat(positions[:, :1], TOKENS, axis=1)
    k_rotated = rotate(k, cos, sin, interleaved, positions)
    q_rotated = rotate(q, cos, sin, interleaved, of_queries)
    result = attune.flash_attn_with_kvcache(
        *(q, k_cache, v_cache),
        k=k,
        v=v,
        rotary_cos=cos,
        rotary_sin=sin,
        cache_seqlens=int32(STORED),
        rotary_interleaved=interleaved,
        return_softmax_lse=True,
        **options,
    )
    for sequence, first in enumerate(STORED):
        assert (k_cache[sequence, first : first + TOKENS] == k_rotated[sequence]).all()
    window = options.get("window_size", (-1, -1))
    lengths = [length + TOKENS for length in STORED]
    causal = options.get("causal", False)
    assert_attends(result, q_rotated, k_cache, v_cache, lengths, causal=causal, window=window)


def test_a_left_pad_moves_neither_new_keys_nor_rotations():
    q, k_cache, v_cache, k, v, _ = step(heads_q=2)
    cos, sin = angles(rotations=160)
    pads = (0, 1, 30, 64)
    named = {"cache_seqlens": int32(STORED), "rotary_cos": cos, "rotary_sin": sin, "causal": True}
    plain = [x.copy() for x in (k_cache, v_cache)]
    attune.flash_attn_with_kvcache(q, *plain, k, v, **named)
    for sequence, pad in enumerate(pads):
        k_cache[sequence, :pad] = v_cache[sequence, :pad] = np.nan
    options = named | {"cache_leftpad": int32(pads), "return_softmax_lse": True}
    result = attune.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, **options)
    positions = int32(STORED)[:, None] + np.arange(TOKENS, dtype=np.int32)
    moved = []
    for cache, expected in zip((k_cache, v_cache), plain):
        moved.append(np.zeros_like(cache))
        for sequence, pad in enumerate(pads):
            assert cache[sequence, pad:].tobytes() == expected[sequence, pad:].tobytes()
            moved[-1][sequence, : 150 - pad] = cache[sequence, pad:]
    lengths = [stored + TOKENS - pad for stored, pad in zip(STORED, pads)]
    queries = rotate(q, cos, sin, True, positions)
    assert_attends(result, queries, *moved, lengths, causal=True)


def test_one_length_for_all():
    q, k_cache, v_cache, k, v, _ = step()
    result = attune.flash_attn_with_kvcache(
        q, k_cache, v_cache, k=k, v=v, cache_seqlens=147, return_softmax_lse=True
    )
    assert (k_cache[:, 147:] == k).all()
    assert_attends(result, q, k_cache, v_cache, [150] * len(q))


Q, K_CACHE, V_CACHE, K, V, _ = step()
COS, SIN = angles()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"v": None}, ValueError, "k and v go together; one of them is None"),
        (
            {"v": V[:, :2]},
            ValueError,
            "v has shape (4, 2, 2, 64); with q of (4, 3, 4, 64) and k_cac",
        ),
        (
            {"k": K[:3], "v": V[:3]},
            ValueError,
            "k has shape (3, 3, 2, 64); with q of (4, 3, 4, 64)",
        ),
        ({"cache_seqlens": None}, ValueError, "cache_seqlens is None; with k and v it says after"),
        ({"cache_seqlens": 148}, ValueError, "cache_seqlens is 148; it must be from 0 to 147"),
        (
            {"rotary_cos": COS},
            ValueError,
            "rotary_cos and rotary_sin go together; one of them is N",
        ),
        (
            {"k": None, "v": None, "rotary_cos": COS, "rotary_sin": SIN},
            ValueError,
            "rotary_cos is given without k and v; it rotates new keys and the queries",
        ),
        ({"softcap": "1"}, TypeError, "softcap is a str; it must be a number"),
        ({"k": K.astype("float32")}, TypeError, "k has dtype float32; it must be float16, as q is"),
    ],
)
def test_mistakes_are_named(change, error, message):
    arguments = {"k": K, "v": V, "cache_seqlens": int32(STORED)} | change
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_with_kvcache(Q, K_CACHE, V_CACHE, **arguments)


def test_a_cache_that_is_read_only_is_refused_where_it_is_written():
    q, k_cache, v_cache, k, v, _ = step()
    k_cache.flags.writeable = False
    attune.flash_attn_with_kvcache(q, k_cache, v_cache)
    with pytest.raises(ValueError, match="k_cache is read-only; results are written to it"):
        attune.flash_attn_with_kvcache(q, k_cache, v_cache, k=k, v=v, cache_seqlens=5)
