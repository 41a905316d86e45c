"""Every mistake is named: the argument, what came and what is accepted."""

import re

import numpy as np
import pytest

import attune


def zeros(*shape, dtype="float16"):
    return np.zeros(shape, dtype)


Q = zeros(2, 8, 4, 64)
K = zeros(2, 16, 2, 64)


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ({"window_size": 5}, TypeError, "window_size is 5; it must be (left, right), two integers"),
        ({"window_size": (1.5, 0)}, TypeError, "window_size is a float; it must be (left, right)"),
        ({"window_size": (-2, 0)}, ValueError, "window_left is -2; it must be from -1 to"),
        ({"softcap": "1"}, TypeError, "softcap is a str; it must be a number"),
        (
            {"softcap": -1},
            ValueError,
            "softcap is -1; it must be from 0, for none, to 1.8446744e+19",
        ),
    ],
)
def test_wrong_options(option, error, message):
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_func(Q, K, K, **option)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            ([1.0], K, K),
            "q is a list; it must be a PyTorch CUDA tensor, a CuPy, JAX or NumPy array",
        ),
        ((Q, K, None), "v is a NoneType; it must be a numpy.ndarray, as q is"),
        ((Q.astype("float32"), K, K), "q has dtype float32; it must be float16 or bfloat16"),
        ((Q.astype(">f2"), K, K), "q has dtype >f2; it must be float16 or bfloat16"),
        ((Q, K.astype("float32"), K), "k has dtype float32; it must be float16, as q is"),
    ],
)
def test_wrong_types(arrays, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        attune.flash_attn_func(*arrays)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((Q[0], K, K), "q has shape (8, 4, 64); it must be (batch, seqlen, heads, head_dim)"),
        (
            (Q, K, K[None]),
            "v has shape (1, 2, 16, 2, 64); it must be (batch, seqlen, heads, head_dim)",
        ),
        ((Q[:, :, :0], K, K), "q has shape (2, 8, 0, 64); heads and head_dim must be at least 1"),
        ((Q, K, K[..., :0]), "v has shape (2, 16, 2, 0); heads and head_dim must be at least 1"),
        (
            (Q, K[:1], K),
            "k has shape (1, 16, 2, 64); with q of (2, 8, 4, 64) it must be (2, seqlen_k,",
        ),
        (
            (Q, K[..., :32], K),
            "k has shape (2, 16, 2, 32); with q of (2, 8, 4, 64) it must be (2, ",
        ),
        (
            (Q, K, K[:, :8]),
            "v has shape (2, 8, 2, 64); with k of (2, 16, 2, 64) it must be (2, 16, 2, ",
        ),
        ((Q[:, :, :3], K, K), "k has 2 heads; they must divide the 3 heads of q"),
        (
            (Q[..., ::2], K[..., :32], K[..., :32]),
            "q has strides (2048, 256, 64, 2), in elements; the last dimension must be",
        ),
        (
            (Q[..., ::-1], K, K),
            "q has strides (2048, 256, 64, -1), in elements; the last dimension",
        ),
        (
            (Q[:, ::-1], K, K),
            "q.stride_seq is -256; it must be a multiple of 8 elements, 0 or more",
        ),
        (
            (zeros(1, 8, 4, 65)[..., :64],) + (K[:1],) * 2,
            "q.stride_seq is 260; it must be a multiple of 8",
        ),
        (
            (zeros(1, 8, 1, 72)[..., 4:68],) + (K[:1, :, :1],) * 2,
            "it must be a multiple of 16 bytes",
        ),
        (
            (zeros(1, 8, 1, 257),) * 3,
            "head_dim is 264; it must be from 1 to 256",
        ),
    ],
)
def test_wrong_values(arrays, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_func(*arrays)


def test_strides_that_split_elements():
    pairs = np.zeros((2, 8, 4, 64), [("value", "float16"), ("byte", "u1")])
    with pytest.raises(ValueError, match=r"q has strides of \(.*, 3\) bytes; 2 must divide them"):
        attune.flash_attn_func(pairs["value"], K, K)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0])
def test_scales_out_of_range(scale):
    message = f"softmax_scale is {scale:g}; it must be from 0 to 1.8446744e+19"
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_func(Q, K, K, softmax_scale=scale)


def test_a_scale_that_is_no_number():
    with pytest.raises(TypeError, match="softmax_scale is a str; it must be a number"):
        attune.flash_attn_func(Q, K, K, softmax_scale="0.125")


def test_packed_shapes():
    message = "kv has shape (2, 16, 2, 64); it must be (batch, seqlen, 2, heads, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_kvpacked_func(Q, K)
    message = "qkv has shape (2, 8, 2, 4, 64); it must be (batch, seqlen, 3, heads, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        attune.flash_attn_qkvpacked_func(zeros(2, 8, 2, 4, 64))
    with pytest.raises(TypeError, match="kv is a NoneType; it must be a numpy.ndarray, as q is"):
        attune.flash_attn_kvpacked_func(Q, None)


def test_packed_names():
    with pytest.raises(TypeError, match="qkv has dtype float32"):
        attune.flash_attn_qkvpacked_func(zeros(2, 8, 3, 4, 64, dtype="float32"))
    with pytest.raises(ValueError, match="kv has 2 heads; they must divide the 3 heads of q"):
        attune.flash_attn_kvpacked_func(Q[:, :, :3], zeros(2, 16, 2, 2, 64))
