"""Rotating queries and keys in place: NumPy arrays in the emulator, and what is wrong with arguments."""

import re

import numpy as np
import pytest
from cached import int32
from conftest import random_array
from test_store import angles, caches, rotated

import attune

HEAD_DIM = 64

both_styles = pytest.mark.parametrize("interleaved", [True, False], ids=["pairs", "halves"])


def queries_and_keys(seqlen=3, dtype="float16", batch=2):
    return [random_array((batch, seqlen, heads, HEAD_DIM), dtype, heads) for heads in (4, 2)]


def assert_rotated(found, before, cos, sin, positions, interleaved):
    """At most twice the error that rounding the exact result makes, and the other columns as they were."""
    exact = rotated(before, cos, sin, positions, interleaved)
    rounding = np.abs(exact.astype(before.dtype).astype(np.float64) - exact).max()
    assert np.abs(found.astype(np.float64) - exact).max() <= 2 * rounding
    untouched = slice(2 * cos.shape[1], None)
    assert found[..., untouched].tobytes() == before[..., untouched].tobytes()


@both_styles
@pytest.mark.parametrize("rotary_dim", [16, 32, 64])
@pytest.mark.parametrize(
    ("options", "positions"),
    [
        ({}, [[0, 1, 2], [0, 1, 2]]),
        ({"seqlen_offsets": int32([5, 29])}, [[5, 6, 7], [29, 30, 31]]),
        ({"positions": int32([[3, 0, 31], [9, 9, 4]])}, [[3, 0, 31], [9, 9, 4]]),
    ],
    ids=["first", "offsets", "positions"],
)
def test_queries_and_keys_are_rotated_in_place(dtype, interleaved, rotary_dim, options, positions):
    q, k = queries_and_keys(dtype=dtype)
    before = q.copy(), k.copy()
    cos, sin = angles(rotary_dim=rotary_dim, dtype=dtype)
    assert attune.apply_rotary(q, k, cos, sin, rotary_interleaved=interleaved, **options) is None
    for found, old in zip((q, k), before):
        assert_rotated(found, old, cos, sin, np.array(positions), interleaved)


def test_keys_may_be_left_out():
    q, k = queries_and_keys()
    alone = q.copy()
    attune.apply_rotary(q, k, *angles())
    attune.apply_rotary(alone, None, *angles())
    assert alone.tobytes() == q.tobytes()


@pytest.mark.parametrize("named", [{}, {"rotary_interleaved": False}])
def test_keys_are_those_that_store_kvcache_stores(named):
    q, k = queries_and_keys()
    cos, sin = angles()
    lengths = int32([6, 2])
    stored, _ = cache = caches(pages=2, page_size=12)
    attune.store_kvcache(
        k, k, *cache, cache_seqlens=lengths, rotary_cos=cos, rotary_sin=sin, **named
    )
    attune.apply_rotary(q, k, cos, sin, seqlen_offsets=lengths, **named)
    for sequence, first in enumerate(lengths):
        assert stored[sequence, first : first + 3].tobytes() == k[sequence].tobytes()


def test_queries_are_those_that_flash_attn_with_kvcache_attends_with():
    q, k = queries_and_keys()
    cos, sin = angles()
    lengths = int32([6, 2])
    options = {"cache_seqlens": lengths, "causal": True}
    cache, other = ([random_array((2, 12, 2, HEAD_DIM), "float16", 5)] * 2 for _ in range(2))
    cache, other = ([array.copy() for array in one] for one in (cache, other))
    expected = attune.flash_attn_with_kvcache(
        q, *cache, k, k, rotary_cos=cos, rotary_sin=sin, **options
    )
    keys = k.copy()
    attune.apply_rotary(q, keys, cos, sin, seqlen_offsets=lengths)
    found = attune.flash_attn_with_kvcache(q, *other, keys, k, **options)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert all(map(np.array_equal, other, cache))


def test_positions_of_rows_of_all_sequences():
    q, k = queries_and_keys()
    rows = [x.reshape(6, -1, HEAD_DIM).copy() for x in (q, k)]
    positions = int32([3, 1, 4, 1, 5, 9])
    cos, sin = angles()
    attune.apply_rotary(*rows, cos, sin, positions=positions)
    for found, before in zip(rows, (q, k)):
        assert_rotated(found, before.reshape(found.shape), cos, sin, positions, True)


def test_rows_at_positions_without_an_angle_stay():
    q, k = queries_and_keys()
    before = q.copy(), k.copy()
    cos, sin = angles(rotations=8)
    attune.apply_rotary(q, k, cos, sin, positions=int32([[8, -1, 7], [2**31 - 1, -(2**31), 0]]))
    for found, old in zip((q, k), before):
        at = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        assert found[at].tobytes() == old[at].tobytes()
        last = np.array([7, 0])
        assert_rotated(found[:, 2], old[:, 2], cos, sin, last, True)


def test_parts_of_one_array_are_rotated_alone():
    q, k = queries_and_keys()
    packed = np.concatenate([q, k, k], axis=2)
    attune.apply_rotary(packed[:, :, :4], packed[:, :, 4:6], *angles(), rotary_interleaved=False)
    values = packed[:, :, 6:].copy()
    assert values.tobytes() == k.tobytes()
    attune.apply_rotary(q, k, *angles(), rotary_interleaved=False)
    assert packed.tobytes() == np.concatenate([q, k, values], axis=2).tobytes()


def test_one_offset_for_all_is_a_later_row_of_the_angles():
    q, k = queries_and_keys()
    other = q.copy(), k.copy()
    cos, sin = angles()
    attune.apply_rotary(q, k, cos[7:], sin[7:])
    attune.apply_rotary(*other, cos, sin, seqlen_offsets=int32([7, 7]))
    assert all(map(np.array_equal, other, (q, k)))


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 3), (2, 0)])
def test_nothing_to_rotate(batch, seqlen):
    q, k = queries_and_keys(seqlen, batch=batch)
    attune.apply_rotary(q, k, *angles())
    attune.apply_rotary(q, k, *angles(), seqlen_offsets=np.zeros(batch, np.int32))


Q, K = queries_and_keys()
COS, SIN = angles()
POSITIONS = int32([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"q": Q[0, 0]},
            ValueError,
            "q has shape (4, 64); it must be (batch, seqlen, heads, head_dim) or (total, heads, h",
        ),
        ({"k": K[0]}, ValueError, "k has shape (3, 2, 64); it must be (batch, seqlen, heads, he"),
        (
            {"k": K[:, :2]},
            ValueError,
            "k has shape (2, 2, 2, 64); it must be that of q, (2, 3, 4, 64), but for the number of",
        ),
        ({"k": K[..., :32]}, ValueError, "k has shape (2, 3, 2, 32); it must be that of q, (2"),
        ({"q": Q.astype("float32")}, TypeError, "q has dtype float32; it must be float16 or"),
        ({"k": K.astype("float32")}, TypeError, "k has dtype float32; it must be float16, as q is"),
        ({"q": Q[..., :60], "k": K[..., :60]}, ValueError, "head_dim is 60; it must be"),
        (
            {"rotary_cos": None, "rotary_sin": None},
            TypeError,
            "rotary_cos and rotary_sin are None; each must be a numpy.ndarray",
        ),
        ({"rotary_sin": None}, ValueError, "rotary_cos and rotary_sin go together; one of them"),
        (
            {"rotary_sin": SIN[:5]},
            ValueError,
            "rotary_sin has shape (5, 16); it must be (32, 16), as rotary_cos is",
        ),
        (
            {"rotary_cos": COS.astype("float32")},
            TypeError,
            "rotary_cos has dtype float32; it must be float16",
        ),
        (
            {"rotary_cos": COS[:, :12].copy(), "rotary_sin": SIN[:, :12].copy()},
            ValueError,
            "rotary_dim is 24; it must be a multiple of 16, and at most head_dim, which is 64",
        ),
        (
            {"positions": POSITIONS[:, :2].copy()},
            ValueError,
            "positions has shape (2, 2); with q of (2, 3, 4, 64) it must be (2, 3)",
        ),
        (
            {"positions": np.zeros((2, 4), np.int32)[:, :3]},
            ValueError,
            "positions has a stride of 4 elements in dimension 0; it must be contiguous",
        ),
        (
            {"positions": POSITIONS.astype(np.int64)},
            TypeError,
            "positions has dtype int64; it must be int32",
        ),
        (
            {"positions": POSITIONS, "seqlen_offsets": POSITIONS[0, :2]},
            ValueError,
            "positions and seqlen_offsets are both given; positions alone name the rows",
        ),
        (
            {"seqlen_offsets": POSITIONS[0]},
            ValueError,
            "seqlen_offsets has shape (3,); with 2 sequences",
        ),
        ({"seqlen_offsets": 3}, TypeError, "seqlen_offsets is a int; it must be a numpy.ndarray"),
        ({"q": [1.0]}, TypeError, "q is a list; it must be a"),
    ],
)
def test_mistakes_are_named_and_nothing_is_rotated(change, error, message):
    arguments = {"q": Q, "k": K, "rotary_cos": COS, "rotary_sin": SIN} | change
    before = Q.tobytes(), K.tobytes()
    with pytest.raises(error, match=re.escape(message)):
        attune.apply_rotary(**arguments)
    assert (Q.tobytes(), K.tobytes()) == before


@pytest.mark.parametrize("name", ["q", "k"])
def test_an_array_that_is_read_only_is_refused(name):
    arrays = dict(zip("qk", queries_and_keys()))
    arrays[name].flags.writeable = False
    with pytest.raises(ValueError, match=f"{name} is read-only; results are written to it"):
        attune.apply_rotary(*arrays.values(), COS, SIN)
