"""NumPy arrays, served by the emulator."""

import numpy as np
import pytest
from conftest import assert_attends, random_array

import attune


def inputs(dtype, batch=1, seqlen_q=70, seqlen_k=90, heads_q=2, heads_kv=2, head_dim=64):
    q = random_array((batch, seqlen_q, heads_q, head_dim), dtype, 1)
    k = random_array((batch, seqlen_k, heads_kv, head_dim), dtype, 2)
    v = random_array((batch, seqlen_k, heads_kv, head_dim), dtype, 3)
    return q, k, v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"batch": 2, "heads_q": 6, "heads_kv": 2},
        {"heads_q": 4, "heads_kv": 1, "seqlen_q": 1, "seqlen_k": 65},
        {"seqlen_q": 130, "seqlen_k": 33, "head_dim": 40},
        {"head_dim": 128},
    ],
    ids=["plain", "grouped", "one_query", "more_queries_than_keys", "head_dim_128"],
)
def test_agrees_with_float64(dtype, sizes, causal):
    q, k, v = inputs(dtype, **sizes)
    out, lse, dmask = attune.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    assert_attends(out, q, k, v, lse, causal=causal)
    assert dmask is None


@pytest.mark.parametrize(
    "options",
    [{"window_size": (20, 5)}, {"window_size": [30, -1], "causal": True}, {"softcap": 0.7}],
    ids=["window", "left_and_causal", "softcap"],
)
def test_windows_and_soft_caps(options):
    q, k, v = inputs("float16", heads_kv=1)
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    asked = {"window" if name == "window_size" else name: one for name, one in options.items()}
    assert_attends(out, q, k, v, lse, **asked)
    packed = attune.flash_attn_kvpacked_func(q, np.stack([k, v], 2), **options)
    assert packed.tobytes() == out.tobytes()


def test_windows_and_soft_caps_of_packed_arrays():
    qkv = random_array((1, 50, 3, 2, 64), "float16", 1)
    options = {"window_size": (9, 3), "softcap": 2.0}
    out = attune.flash_attn_qkvpacked_func(qkv, **options)
    assert_attends(out, *(qkv[:, :, part] for part in range(3)), window=(9, 3), softcap=2.0)


def test_values_may_have_another_head_dim():
    q, k, v = inputs("float16", head_dim=192)
    out, lse, _ = attune.flash_attn_func(q, k, v[..., :128], return_attn_probs=True)
    assert out.shape == (*q.shape[:3], 128)
    assert_attends(out, q, k, v[..., :128], lse)


@pytest.mark.parametrize("head_dims", [(59, 59), (111, 111), (12, 12), (64, 1)])
def test_a_head_dim_of_any_size(dtype, head_dims):
    q, k, v = inputs(dtype, head_dim=max(head_dims))
    q, k, v = q[..., : head_dims[0]], k[..., : head_dims[0]], v[..., : head_dims[1]]
    out, lse, _ = attune.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert_attends(out, q, k, v, lse, causal=True)
    alone = attune.flash_attn_func(q, k, v, causal=True)
    assert alone.tobytes() == out.tobytes()
    packed = np.stack([k, k * 2], 2)
    found = attune.flash_attn_kvpacked_func(q, packed)
    assert_attends(found, q, k, k * 2)


@pytest.mark.parametrize(
    "window", [[9, 3], np.array([9, 3]), (np.int32(9), np.uint8(3)), np.array([9, 3], "int8")]
)
def test_windows_of_any_integers(window):
    q, k, v = inputs("float16", seqlen_q=20, seqlen_k=30)
    expected = attune.flash_attn_func(q, k, v, window_size=(9, 3))
    assert attune.flash_attn_func(q, k, v, window_size=window).tobytes() == expected.tobytes()


def test_output_alone_has_the_same_bits(dtype):
    q, k, v = inputs(dtype)
    out, _, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    again = attune.flash_attn_func(q, k, v, deterministic=True)
    assert isinstance(again, np.ndarray)
    assert again.tobytes() == out.tobytes()


@pytest.mark.parametrize("scale", [0, 0.3, np.float32(0.05)])
def test_softmax_scale(scale):
    q, k, v = inputs("float16")
    out = attune.flash_attn_func(q, k, v, softmax_scale=scale)
    assert_attends(out, q, k, v, scale=float(scale))


def test_rows_without_keys():
    q, k, v = inputs("float16", seqlen_q=40, seqlen_k=10)
    out, lse, _ = attune.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert not out[:, :30].any()
    assert np.isneginf(lse[:, :, :30]).all()
    assert np.isfinite(lse[:, :, 30:]).all()


def test_heads_before_sequence():
    q, k, v = (x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for x in inputs("float16"))
    assert_attends(attune.flash_attn_func(q, k, v), q, k, v)


def test_slices_and_broadcasts():
    q, k, v = inputs("float16", seqlen_k=180)
    k = k[:, ::2]
    v = np.broadcast_to(v[:, ::2, :1], k.shape)
    assert_attends(attune.flash_attn_func(q, k, v), q, k, v)


def test_read_only_inputs_stay_as_they_are():
    arrays = inputs("float16")
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    attune.flash_attn_func(*arrays)
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("causal", [False, True])
def test_kvpacked(dtype, causal):
    q = random_array((2, 50, 4, 64), dtype, 1)
    kv = random_array((2, 60, 2, 2, 64), dtype, 2)
    out, lse, _ = attune.flash_attn_kvpacked_func(q, kv, causal=causal, return_attn_probs=True)
    assert_attends(out, q, kv[:, :, 0], kv[:, :, 1], lse, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_qkvpacked(dtype, causal):
    qkv = random_array((2, 50, 3, 2, 64), dtype, 1)
    out, lse, _ = attune.flash_attn_qkvpacked_func(qkv, causal=causal, return_attn_probs=True)
    assert_attends(out, *(qkv[:, :, part] for part in range(3)), lse, causal=causal)
