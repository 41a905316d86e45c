"""The gradients of attention: NumPy arrays in the emulator against float64, and what is wrong with arguments."""

import re

import numpy as np
import pytest
from conftest import random_array

import attune


def gradients(
    dout,
    q,
    k,
    v,
    dlse=None,
    scale=None,
    causal=False,
    bias=0,
    seen=True,
    sink=None,
    storage=np.float64,
):
    """dq, dk and dv in float64; every intermediate result is rounded to `storage`.

    `bias` is added to the scores, of which those that are not `seen` are hidden. With a sink, a logit of each head, also
    its gradient.
    """
    dout, q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (dout, q, k, v))
    heads_kv, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def rounded(x):
        return x.astype(storage).astype(np.float64)

    scores = rounded(scale * rounded(q @ k.swapaxes(2, 3)) + bias)
    position = np.arange(scores.shape[2])[:, None] + scores.shape[3] - scores.shape[2]
    hidden = causal & (np.arange(scores.shape[3]) > position)
    scores = np.where(hidden | ~np.asarray(seen), -np.inf, scores)
    logits = np.full((1, 1, 1), -np.inf) if sink is None else sink.astype(np.float64)[:, None, None]
    top = np.maximum(scores.max(axis=3, keepdims=True, initial=-np.inf), logits)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    of_sink = np.exp(logits - top)
    total = weights.sum(axis=3, keepdims=True) + of_sink
    total = np.where(total > 0, total, 1)
    weights = rounded(weights / total)
    dweights = rounded(dout @ v.swapaxes(2, 3))
    D = (weights * dweights).sum(axis=3, keepdims=True)
    if dlse is not None:
        D = D - dlse[..., None]
    dscores = rounded(scale * rounded(weights * (dweights - D)))

    def of_group(x):
        return x.reshape(x.shape[0], heads_kv, group, *x.shape[2:]).sum(axis=2)

    dq = dscores @ k
    dk = of_group(dscores.swapaxes(2, 3) @ q)
    dv = of_group(weights.swapaxes(2, 3) @ dout)
    results = [rounded(x.transpose(0, 2, 1, 3)) for x in (dq, dk, dv)]
    if sink is not None:
        results.append(-(of_sink / total * D).sum(axis=(0, 2, 3)))
    return results


def inputs(dtype="float16", batch=2, seqlen_q=40, seqlen_k=50, heads_q=4, heads_kv=2, head_dim=64):
    q = random_array((batch, seqlen_q, heads_q, head_dim), dtype, 1)
    k, v = (random_array((batch, seqlen_k, heads_kv, head_dim), dtype, seed) for seed in (2, 3))
    return random_array(q.shape, dtype, 4), q, k, v


def assert_gradients(found, dout, q, k, v, **options):
    """At most three times the error of the same formula in the storage type."""
    exact = gradients(dout, q, k, v, **options)
    naive = gradients(dout, q, k, v, storage=q.dtype, **options)
    for one, like, right, near in zip(found, (q, k, v), exact, naive):
        assert one.shape == like.shape
        assert one.dtype == like.dtype
        assert np.abs(one.astype(np.float64) - right).max() <= 3 * np.abs(near - right).max()


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_agree_with_float64(dtype, causal, deterministic):
    dout, q, k, v = inputs(dtype)
    out, lse, _ = attune.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    dlse = random_array(lse.shape, np.float32, 5)
    for own in (None, dlse):
        found = attune.flash_attn_backward(
            dout, q, k, v, out, lse, dsoftmax_lse=own, causal=causal, deterministic=deterministic
        )
        assert_gradients(found, dout, q, k, v, dlse=own, causal=causal)


def test_a_head_dim_that_is_no_multiple_of_8_is_padded():
    dout, q, k, v = inputs(head_dim=36)
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    assert_gradients(attune.flash_attn_backward(dout, q, k, v, out, lse), dout, q, k, v)


def test_sequences_of_a_ragged_batch_are_differentiated_by_themselves():
    dout, q, k, v = inputs(batch=1, seqlen_q=70, seqlen_k=80)
    starts_q, starts_k = np.array([0, 30, 30, 70], np.int32), np.array([0, 25, 50, 80], np.int32)
    rows = [x[0] for x in (dout, q, k, v)]
    named = {
        "cu_seqlens_q": starts_q,
        "cu_seqlens_k": starts_k,
        "max_seqlen_q": 40,
        "max_seqlen_k": 30,
    }
    out, lse, _ = attune.flash_attn_varlen_func(
        *rows[1:], **named, causal=True, return_attn_probs=True
    )
    found = attune.flash_attn_backward(*rows, out, lse, causal=True, **named)
    for i in (0, 2):
        a, b = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        own = dout[:, a], q[:, a], k[:, b], v[:, b]
        parts = found[0][None, a], found[1][None, b], found[2][None, b]
        assert_gradients(parts, *own, causal=True)
    assert not found[1][25:50].any()
    assert not found[2][25:50].any()


def test_without_keys_or_queries_gradients_are_zeros():
    dout, q, k, v = inputs(seqlen_k=0)
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    dq, dk, dv = attune.flash_attn_backward(dout, q, k, v, out, lse)
    assert not dq.any() and dk.size == dv.size == 0
    dout, q, k, v = inputs(seqlen_q=0)
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    dq, dk, dv = attune.flash_attn_backward(dout, q, k, v, out, lse)
    assert dq.size == 0 and not dk.any() and not dv.any()


@pytest.mark.parametrize("told", [True, False], ids=["seqused", "all"])
@pytest.mark.parametrize("head_dim", [64, 36], ids=["d64", "padded"])
def test_rows_that_no_sequence_has_or_uses_have_gradients_of_zeros_whatever_memory_held(
    told, head_dim
):
    rows = [x[0] for x in inputs(batch=1, seqlen_q=90, seqlen_k=130, head_dim=head_dim)]
    length_q, length_k = (20, 25) if told else (35, 40)
    used_q = (np.arange(90) % 35 < length_q) & (np.arange(90) < 70)
    used_k = (np.arange(130) % 40 < length_k) & (np.arange(130) < 80)
    for array, used in zip(rows, (used_q, used_q, used_k, used_k)):
        array[~used] = np.nan
    named = {
        "cu_seqlens_q": np.array([0, 35, 70], np.int32),
        "cu_seqlens_k": np.array([0, 40, 80], np.int32),
        "max_seqlen_q": 35,
        "max_seqlen_k": 40,
    }
    if told:
        named["seqused_q"] = np.array([20, 20], np.int32)
        named["seqused_k"] = np.array([25, 25], np.int32)
    out, lse, _ = attune.flash_attn_varlen_func(*rows[1:], **named, return_attn_probs=True)
    freed = [np.full_like(x, np.nan) for x in rows[1:] for _ in range(4)]
    del freed  # what the gradients may be allocated in
    found = attune.flash_attn_backward(*rows, out, lse, **named)
    for gradient, used in zip(found, (used_q, used_k, used_k)):
        assert not gradient[~used].any()
        assert np.isfinite(gradient).all() and gradient[used].any()


def test_without_sequences_all_rows_have_gradients_of_zeros():
    dout, q, k, v = (x[0] for x in inputs(batch=1))
    none = np.zeros(1, np.int32)
    named = {"cu_seqlens_q": none, "cu_seqlens_k": none, "max_seqlen_q": 0, "max_seqlen_k": 0}
    lse = np.zeros((q.shape[1], q.shape[0]), np.float32)
    freed = [np.full_like(x, np.nan) for x in (q, k, v) for _ in range(4)]
    del freed  # what the gradients may be allocated in
    assert not any(x.any() for x in attune.flash_attn_backward(dout, q, k, v, q, lse, **named))


@pytest.mark.parametrize("head_dim", [96, 192])
@pytest.mark.parametrize("expanded", [1, 3], ids=["batch", "all"])
def test_rows_that_tensor_maps_do_not_take_get_the_workspace_of_the_kernel_that_does(
    head_dim, expanded
):
    dout, q, k, v = inputs(head_dim=head_dim)
    dout = np.broadcast_to(dout[(slice(1),) * expanded], dout.shape)
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    found = attune.flash_attn_backward(dout, q, k, v, out, lse, deterministic=False)
    assert_gradients(found, dout, q, k, v)


@pytest.mark.parametrize(
    "given",
    [
        {"cu_seqlens_k": np.array([0, 50, 100], np.int32)},
        {"max_seqlen_q": 40},
        {"max_seqlen_k": 50},
        {"seqused_q": np.array([3, 4], np.int32)},
        {"seqused_k": np.array([3, 4], np.int32)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_ragged_batches_have_is_refused_of_others(given):
    dout, q, k, v = inputs()
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    text = f"{next(iter(given))} is given without cu_seqlens_q, which makes a batch ragged"
    with pytest.raises(ValueError, match=text):
        attune.flash_attn_backward(dout, q, k, v, out, lse, **given)


def test_ragged_rows_that_no_launch_would_write_are_refused():
    dout, q, k, v = (x[0] for x in inputs(batch=1))
    starts = {"cu_seqlens_q": np.array([0, 40], np.int32), "cu_seqlens_k": np.array([0, 50], np.int32)}
    lse = np.zeros((4, 40), np.float32)
    with pytest.raises(ValueError, match="max_seqlen_q is 0, and q of"):
        attune.flash_attn_backward(
            dout, q, k, v, q, lse, **starts, max_seqlen_q=0, max_seqlen_k=50
        )


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"dout": (2, 40, 4, 32)}, ValueError, "dout has shape (2, 40, 4, 32); with q of"),
        ({"k": (2, 50, 2, 32)}, ValueError, "k has shape (2, 50, 2, 32); with q of"),
        ({"v": (2, 49, 2, 64)}, ValueError, "v has shape (2, 49, 2, 64); with k of"),
        ({"softmax_lse": (2, 40, 4)}, ValueError, "softmax_lse has shape (2, 40, 4)"),
    ],
    ids=["dout", "k", "v", "lse"],
)
def test_a_wrong_shape_is_named(wrong, error, text):
    dout, q, k, v = inputs()
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    arrays = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "softmax_lse": lse}
    for name, shape in wrong.items():
        arrays[name] = np.zeros(shape, arrays[name].dtype)
    with pytest.raises(error, match=re.escape(text)):
        attune.flash_attn_backward(**arrays)


def test_an_lse_of_another_dtype_is_refused():
    dout, q, k, v = inputs()
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    with pytest.raises(TypeError, match="softmax_lse has dtype float64; it must be float32"):
        attune.flash_attn_backward(dout, q, k, v, out, lse.astype(np.float64))
