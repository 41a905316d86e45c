"""Attention to a cache of more queries than decode takes, which prefill serves: in the emulator."""

import re

import numpy as np
import pytest
from cached import LENGTHS, assert_attends, in_wider_rows, int32, paged, problem
from test_append import rotate
from test_kvcache import LEFTPAD, padded_at_the_left
from test_store import angles

import attune

STORED = (0, 5, 65, 130)
TOKENS = 20


def attend(*arrays, **options):
    return attune.flash_attn_with_kvcache(*arrays, return_softmax_lse=True, **options)


def masks_of(options):
    return {"causal": "causal" in options, "window": options.get("window_size", (-1, -1))}


@pytest.mark.parametrize("page_size", [None, 1, 16, 30])
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (40, 3)}, {}])
def test_agrees_with_float64(dtype, page_size, options):
    q, k, v = problem(dtype, seqlen_q=70)
    cache, where = (k, v), {}
    if page_size is not None:
        *cache, where["block_table"] = paged(k, v, page_size)
    result = attend(q, *cache, cache_seqlens=int32(LENGTHS), **where, **options)
    assert_attends(result, q, k, v, LENGTHS, **masks_of(options))


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize(("given", "length"), [(None, 150), (150, 150), (100, 100), (0, 0)])
def test_one_length_for_all(given, length, page_size):
    q, k, v = problem(seqlen_q=17)
    for array in (k, v):
        array[:, length:] = np.nan
    cache, where = (k, v), {}
    if page_size is not None:
        *cache, where["block_table"] = paged(k, v, page_size)
        given = 150 if given is None else given
    result = attend(q, *cache, cache_seqlens=given, causal=True, **where)
    assert_attends(result, q, k, v, [length] * len(LENGTHS), causal=True)


@pytest.mark.parametrize("page_size", [None, 16])
def test_sequences_anywhere_in_a_larger_cache(page_size):
    q, k, v = problem(seqlen_q=17)
    index, lengths = int32([3, 0, 2]), [150, 9, 65]
    cache, where = (k, v), {"cache_batch_idx": index, "causal": True}
    if page_size is not None:
        *cache, where["block_table"] = paged(k, v, page_size)
    result = attend(q[:3], *cache, cache_seqlens=int32(lengths), **where)
    assert_attends(result, q[:3], k[index], v[index], lengths, causal=True)
    result = attend(q[:3], *cache, cache_seqlens=140, **where)
    assert_attends(result, q[:3], k[index], v[index], [140] * 3, causal=True)


def test_lengths_beyond_the_cache_count_as_its_room():
    q, k, v = problem(seqlen_q=17)
    result = attend(q, k, v, cache_seqlens=int32([-5, 1000, 150, 3]))
    assert_attends(result, q, k, v, [0, 150, 150, 3])


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("lengths", [int32(LENGTHS), 150])
def test_a_cache_of_any_head_dim_is_read_in_place(page_size, lengths):
    q, k, v = problem(seqlen_q=17, head_dim=59)
    cache, where = (k, v), {}
    if page_size is not None:
        *cache, where["block_table"] = paged(k, v, page_size)
    result = attend(q, *in_wider_rows(*cache), cache_seqlens=lengths, causal=True, **where)
    held = [lengths] * len(q) if isinstance(lengths, int) else LENGTHS
    assert_attends(result, q, k, v, held, causal=True)


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("one_length", [False, True])
def test_one_query_beside_many(page_size, one_length):
    q, k, v = problem(seqlen_q=33, heads_q=8)
    lengths = (150,) * 4 if one_length else LENGTHS
    counts = (0, 1, 33, 1)
    starts = int32(np.cumsum((0, *counts)))
    ragged = np.concatenate([q[i, :count] for i, count in enumerate(counts)])
    options = {"cache_seqlens": 150 if one_length else int32(lengths), "causal": True}
    cache = (k, v)
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    out, lse = attend(ragged, *cache, cu_seqlens_q=starts, max_seqlen_q=33, **options)
    assert lse.shape == (8, sum(counts))
    for i in (1, 2, 3):
        rows = slice(starts[i], starts[i + 1])
        one = (out[rows][None], lse[:, rows][None])
        arrays = (ragged[rows][None], k[i : i + 1], v[i : i + 1])
        assert_attends(one, *arrays, lengths[i : i + 1], causal=True)


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("cache_seqlens", [int32(STORED), 120], ids=["lengths", "one_length"])
def test_new_keys_are_stored_and_attended_to(page_size, cache_seqlens):
    q, k, v = problem(seqlen_q=TOKENS)
    before = int32(np.broadcast_to(cache_seqlens, len(q)))
    new = [np.stack([x[i, n : n + TOKENS] for i, n in enumerate(before)]) for x in (k, v)]
    cache, where = (k.copy(), v.copy()), {"causal": True}
    for array in cache:
        for i, n in enumerate(before):
            array[i, n:] = np.nan
    if page_size is not None:
        *cache, where["block_table"] = paged(*cache, page_size)
    result = attend(q, *cache, *new, cache_seqlens=cache_seqlens, **where)
    assert_attends(result, q, k, v, before + TOKENS, causal=True)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (30, -1)}])
@pytest.mark.parametrize("heads_first", [False, True])
def test_new_keys_and_queries_are_rotated(interleaved, options, heads_first):
    q, k_cache, v_cache = problem(seqlen_q=TOKENS)
    k, v = k_cache[:, 7 : 7 + TOKENS].copy(), v_cache[:, 7 : 7 + TOKENS].copy()
    cos, sin = angles(rotations=160)
    positions = int32(STORED)[:, None] + np.arange(TOKENS, dtype=np.int32)
    of_queries = positions if options else np.repeat(positions[:, :1], TOKENS, axis=1)
    k_rotated = rotate(k, cos, sin, interleaved, positions)
    q_rotated = rotate(q, cos, sin, interleaved, of_queries)
    given = q.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) if heads_first else q.copy()
    result = attend(
        *(given, k_cache, v_cache, k, v, cos, sin),
        cache_seqlens=int32(STORED),
        rotary_interleaved=interleaved,
        **options,
    )
    assert (given == q).all()
    for sequence, first in enumerate(STORED):
        assert (k_cache[sequence, first : first + TOKENS] == k_rotated[sequence]).all()
    lengths = [length + TOKENS for length in STORED]
    assert_attends(result, q_rotated, k_cache, v_cache, lengths, **masks_of(options))


def test_new_keys_and_queries_of_any_head_dim_are_rotated():
    q, k_cache, v_cache = problem(seqlen_q=TOKENS, head_dim=59)
    k, v = k_cache[:, 7 : 7 + TOKENS].copy(), v_cache[:, 7 : 7 + TOKENS].copy()
    cos, sin = angles(160, 48)
    caches = in_wider_rows(k_cache, v_cache)
    result = attend(q, *caches, k, v, cos, sin, cache_seqlens=int32(STORED), causal=True)
    positions = int32(STORED)[:, None] + np.arange(TOKENS, dtype=np.int32)
    wide = np.pad(q, ((0, 0), (0, 0), (0, 0), (0, 5)))
    q_rotated = rotate(wide, cos, sin, True, positions)[..., :59]
    lengths = [length + TOKENS for length in STORED]
    assert_attends(result, q_rotated, *caches, lengths, causal=True)


@pytest.mark.parametrize("page_size", [None, 1, 16])
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (20, 1)}])
def test_keys_in_front_of_a_left_pad_do_not_exist(dtype, page_size, options):
    q, k, v, moved = padded_at_the_left(*problem(dtype, seqlen_q=17))
    cache, where = (k, v), {}
    if page_size is not None:
        *cache, table = paged(k, v, page_size)
        table[3, : 149 // page_size] = -1  # pages of no key
        where["block_table"] = table
    named = options | where | {"cache_leftpad": int32(LEFTPAD)}
    result = attend(q, *cache, cache_seqlens=int32(LENGTHS), **named)
    held = [n - pad for n, pad in zip(LENGTHS, LEFTPAD)]
    assert_attends(result, q, *moved, held, **masks_of(options))
    if page_size is None:  # without lengths all that there is room for
        result = attend(q, *cache, **named)
        assert_attends(result, q, *moved, [150 - pad for pad in LEFTPAD], **masks_of(options))


@pytest.mark.parametrize("page_size", [None, 16])
def test_a_left_pad_of_sequences_anywhere_in_a_cache_whose_pages_lie_apart(page_size):
    q, k, v, moved = padded_at_the_left(*problem(seqlen_q=17))
    index = int32([2, 0, 3])
    cache, where = (k, v), {"cache_batch_idx": index, "cache_leftpad": int32(LEFTPAD)[index]}
    if page_size is not None:
        *cache, where["block_table"] = paged(k, v, page_size)
    cache = np.stack(cache, axis=1)  # keys and values of a page beside each other
    lengths = (150, 20, 150)
    result = attend(q[:3], cache[:, 0], cache[:, 1], cache_seqlens=int32(lengths), **where)
    held = [n - LEFTPAD[i] for n, i in zip(lengths, index)]
    assert_attends(result, q[:3], *(x[index] for x in moved), held)
    if page_size is None:  # lengths beyond the cache count as its room
        wild = int32([151, 20, 1000])
        again = attend(q[:3], cache[:, 0], cache[:, 1], cache_seqlens=wild, **where)
        assert again[0].tobytes() == result[0].tobytes()


@pytest.mark.parametrize("queries", [3, 17])
@pytest.mark.parametrize("cache_seqlens", [150, int32([150] * 4)], ids=["one_length", "lengths"])
def test_queries_are_rotated_with_new_keys_alone(queries, cache_seqlens):
    q, k, v = problem(seqlen_q=queries)
    new = (k[:, :0], v[:, :0])
    with pytest.raises(ValueError, match="seqlen_new is 0"):
        attend(q, k, v, *new, *angles(rotations=200), cache_seqlens=cache_seqlens)


def test_wild_lengths_and_left_pads_are_those_of_few_queries():
    q, k, v = problem(seqlen_q=17)
    options = {"cache_leftpad": int32([-3, -(2**31), 0, 5])}
    lengths = (0, 1, 65, 133)
    result = attend(q, k, v, cache_seqlens=int32(lengths), **options)
    k[3, :128], v[3, :128] = k[3, 5:133], v[3, 5:133]
    assert_attends(result, q, k, v, (0, 1, 65, 128))
    wild = int32([2**31 - 1, -(2**31), -2, 140])
    new = (np.full_like(k[:, :3], 0.5), np.full_like(v[:, :3], 0.25))
    few = attend(q[:, :3], k.copy(), v.copy(), *new, cache_seqlens=wild, cache_leftpad=int32([0] * 4))
    for where in ({}, {"cache_leftpad": int32([0] * 4)}):
        many = attend(q, k.copy(), v.copy(), *new, cache_seqlens=wild, **where)
        np.testing.assert_allclose(many[0][:, :3], few[0], atol=2e-3)
        np.testing.assert_allclose(many[1][:, :, :3], few[1], atol=2e-3)


@pytest.mark.parametrize("apart", [16, 17])
@pytest.mark.parametrize("entry", [-1, -(2**31), 0x10000000, -0x0F0F0F0F, 3, 1000])
def test_a_left_pad_reads_no_page_that_the_cache_has_not(entry, apart):
    q, k, v = (x[:1] for x in problem(seqlen_q=17))
    cache = np.full((2, 3, apart, 2, 64), np.nan, "float16")[:, :, :16]  # page 0 is no sequence's
    cache[0, 1:] = k[0, :32].reshape(2, 16, 2, 64)
    cache[1, 1:] = v[0, :32].reshape(2, 16, 2, 64)
    table = int32([[1, entry]])
    out, _ = attend(q, *cache, block_table=table, cache_seqlens=32, cache_leftpad=int32([3]))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("page_size", [None, 16])
def test_a_left_pad_after_the_keys_leaves_none(page_size):
    q, k, v = problem(seqlen_q=17)
    options = {"cache_seqlens": int32(LENGTHS), "cache_leftpad": int32([0, 0, 66, 2**31 - 1])}
    cache = (k, v)
    if page_size is not None:
        *cache, options["block_table"] = paged(k, v, page_size)
    assert_attends(attend(q, *cache, **options), q, k, v, (0, 1, 0, 0))


@pytest.mark.parametrize("page_size", [None, 16])
def test_a_left_pad_moves_neither_new_keys_nor_rotations(page_size):
    q, k_cache, v_cache = problem(seqlen_q=TOKENS)
    k, v = k_cache[:, 7 : 7 + TOKENS].copy(), v_cache[:, 7 : 7 + TOKENS].copy()
    cos, sin = angles(rotations=160)
    pads = (0, 5, 30, 64)
    for sequence, pad in enumerate(pads):
        k_cache[sequence, :pad] = v_cache[sequence, :pad] = np.nan
    rows = np.arange(4)[:, None], int32(STORED)[:, None] + np.arange(TOKENS)
    positions = rows[1].astype("int32")
    cache, where = (k_cache.copy(), v_cache.copy()), {"causal": True}
    if page_size is not None:
        *cache, where["block_table"] = paged(*cache, page_size)
    named = {"cache_seqlens": int32(STORED), "cache_leftpad": int32(pads)}
    result = attend(q, *cache, k, v, cos, sin, **named, **where)
    k_cache[rows], v_cache[rows] = rotate(k, cos, sin, True, positions), v
    moved = [np.zeros_like(k_cache), np.zeros_like(v_cache)]
    for to, held in zip(moved, (k_cache, v_cache)):
        for sequence, pad in enumerate(pads):
            to[sequence, : 150 - pad] = held[sequence, pad:]
    lengths = [stored + TOKENS - pad for stored, pad in zip(STORED, pads)]
    assert_attends(result, rotate(q, cos, sin, True, positions), *moved, lengths, causal=True)


def test_a_cache_that_a_left_pad_cannot_take_in_rows_is_named():
    q, k, v = problem(seqlen_q=17)
    options = {"cache_leftpad": int32(LEFTPAD)}
    apart = np.zeros((4, 2, 150, 2, 64), "float16")
    with pytest.raises(NotImplementedError, match="k_cache are 300 rows apart and those of v_cac"):
        attend(q, apart[:, 0], v, **options)
    wider = np.zeros((4, 150 * 128 + 8), "float16")[:, :-8].reshape(4, 150, 2, 64)
    assert wider.strides[0] == 2 * (150 * 128 + 8)
    with pytest.raises(NotImplementedError, match="19208 elements apart and its rows 128; pages"):
        attend(q, k, wider, **options)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_soft_cap_slopes_and_sinks_are_those_of_dense_attention(dtype):
    q, k, v = problem(seqlen_q=17)
    slopes, sinks = np.linspace(0.1, 0.4, 4).astype("float32"), np.linspace(-1, 2, 4).astype(dtype)
    options = {"causal": True, "alibi_slopes": slopes, "learnable_sink": sinks, "softcap": 3.0}
    out, lse = attend(q, k, v, cache_seqlens=int32(LENGTHS), **options)
    for i, length in enumerate(LENGTHS):
        if length == 0:
            assert not out[i].any()
            np.testing.assert_allclose(lse[i], np.broadcast_to(sinks[:, None], lse[i].shape))
            continue
        keys = [x[i : i + 1, :length] for x in (k, v)]
        wanted, wanted_lse, _ = attune.flash_attn_func(
            q[i : i + 1], *keys, return_attn_probs=True, **options
        )
        np.testing.assert_allclose(out[i], wanted[0], rtol=4e-3, atol=2e-3)
        np.testing.assert_allclose(lse[i], wanted_lse[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("leftpad", [None, int32([0, 0, 20, 40])], ids=["no_pad", "left_pad"])
def test_expressions_mean_what_they_mean_to_few_queries(leftpad):
    q, k, v = problem(seqlen_q=17)
    *cache, table = paged(k, v, 16)
    shift = np.random.default_rng(5).standard_normal((4, 17)).astype("float32") / 50
    options = {
        "score": "s + shift[b, q] * (k - p)",
        "mask": "k <= p and k % 3 != 1",
        "params": {"shift": shift},
        "cache_seqlens": int32(LENGTHS),
        "block_table": table,
        "cache_leftpad": leftpad,
        "return_lse": True,
    }
    out, lse = attune.attention(q, *cache, **options)
    few = slice(5, 17)  # whose positions stay, as they end where the keys do
    options["params"] = {"shift": shift[:, few].copy()}
    wanted, wanted_lse = attune.attention(q[:, few], *cache, **options)
    np.testing.assert_allclose(out[:, few], wanted, rtol=4e-3, atol=2e-3)
    np.testing.assert_allclose(lse[:, :, few], wanted_lse, rtol=1e-4, atol=1e-4)


def test_a_given_output_is_written_and_returned():
    q, k, v = problem(seqlen_q=17)
    expected, _ = attend(q, k, v, cache_seqlens=int32(LENGTHS))
    out = np.full((4, 4, 17, 64), 7, "float16").transpose(0, 2, 1, 3)
    returned = attune.flash_attn_with_kvcache(q, k, v, cache_seqlens=int32(LENGTHS), out=out)
    assert returned is out
    assert out.tobytes() == expected.tobytes()


def test_a_cache_without_room_gives_zeros():
    q, k, v = problem(seqlen_q=17)
    for lengths in (int32([0] * 4), None):
        out, lse = attend(q, k[:, :0], v[:, :0], cache_seqlens=lengths)
        assert not out.any()
        assert np.isneginf(lse).all()


Q, K, V = problem(seqlen_q=17)
OVERLAPPING = np.lib.stride_tricks.as_strided(Q[:1].copy(), Q.shape, (0, *Q.strides[1:]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_splits": 257}, ValueError, "splits is 257; it must be from 0 to 256"),
        ({"window_size": (-2, 0)}, ValueError, "window_left is -2; it must be from -1 to"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale is -1; it must be from 0 to"),
        ({"out": OVERLAPPING}, ValueError, "o.stride_batch is 0; rows that are written must not"),
        (
            {"check_tables": True},
            NotImplementedError,
            "check_tables is given with 17 queries a sequence; with more than 16 it must be",
        ),
    ],
)
@pytest.mark.parametrize("appends", [False, True])
def test_mistakes_are_named_before_anything_is_written(change, error, message, appends):
    k, v = K.copy(), V.copy()
    new = (K[:, :17] + 1, V[:, :17] + 1) if appends else ()
    lengths = int32([0, 1, 65, 133])
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_with_kvcache(Q, k, v, *new, cache_seqlens=lengths, **change)
    assert k.tobytes() == K.tobytes()
    assert v.tobytes() == V.tobytes()
