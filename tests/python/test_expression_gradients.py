"""Gradients through slopes, expressions and sinks: NumPy arrays in the emulator against float64, and what is refused."""

import numpy as np
import pytest
from test_backward import assert_gradients, gradients, inputs

import attune

BATCH, ROWS, KEYS, HEADS = 2, 40, 50, 4
#: Of every score: positions among the keys, keys, heads and sequences.
B, H, P, J = np.ix_(range(BATCH), range(HEADS), np.arange(ROWS) + KEYS - ROWS, range(KEYS))

SLOPES = np.random.default_rng(7).random((BATCH, HEADS)).astype("float32")
DOCUMENTS = np.sort(np.random.default_rng(8).integers(0, 4, (BATCH, KEYS))).astype("int32")
PREFIX = np.array([30, 0], "int32")
HIDING = np.zeros((1, 1, KEYS, KEYS), "float32")
HIDING[..., np.arange(KEYS) % 4 == 3, :] = HIDING[..., np.arange(KEYS) % 5 == 1] = -np.inf

#: Expressions, and what they do to scores.
CASES = {
    "slopes and the causal mask": (
        {"score": "s + slope[b, h] * (k - p)", "params": {"slope": SLOPES}, "causal": True},
        {"bias": SLOPES[B, H] * (J - P), "causal": True},
    ),
    "documents": (
        {"mask": "k <= p and doc[b, p] == doc[b, k]", "params": {"doc": DOCUMENTS}},
        {"seen": (J <= P) & (DOCUMENTS[B, P] == DOCUMENTS[B, J])},
    ),
    "prefix": (
        {"mask": lambda k, p, b, prefix: (k <= p) | (k < prefix[b]), "params": {"prefix": PREFIX}},
        {"seen": (J <= P) | (J < PREFIX[B])},
    ),
    "a bias of each distance, seen by rows from 20 on": (
        {"score": lambda s, k, p, h: s + 0.01 * h * (abs(p - k) % 7), "mask": lambda p: p >= 20},
        {"bias": 0.01 * H * (np.abs(P - J) % 7), "seen": P >= 20},
    ),
    "scores of minus infinity, all those of some rows": (
        {"score": "select(k <= p and k % 3 != 1 and p >= 20, s + slope[b, h] * k, -inf)"}
        | {"params": {"slope": SLOPES}},
        {"bias": SLOPES[B, H] * J, "seen": (J <= P) & (J % 3 != 1) & (P >= 20)},
    ),
    "a bias of minus infinity, of all keys of some rows": (
        {"score": "s + bias[p, k]", "params": {"bias": HIDING[0, 0]}},
        {"seen": (J % 5 != 1) & (P % 4 != 3)},
    ),
}


@pytest.mark.parametrize("deterministic", [None, False])
@pytest.mark.parametrize("which", CASES)
def test_gradients_of_expressions_agree_with_float64(which, deterministic):
    named, effect = CASES[which]
    dout, q, k, v = inputs()
    out, lse = attune.attention(q, k, v, return_lse=True, **named)
    dlse = np.random.default_rng(5).standard_normal(lse.shape).astype("float32")
    found = attune.flash_attn_backward(
        dout, q, k, v, out, lse, dsoftmax_lse=dlse, deterministic=deterministic, **named
    )
    assert_gradients(found, dout, q, k, v, dlse=np.where(np.isfinite(lse), dlse, 0), **effect)


@pytest.mark.parametrize("slopes", [SLOPES, SLOPES[0]], ids=["batch and heads", "heads"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_with_slopes_have_the_same_bits_each_time(slopes, causal):
    dout, q, k, v = inputs()
    named = {"causal": causal, "alibi_slopes": slopes}
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True, **named)
    found = attune.flash_attn_backward(dout, q, k, v, out, lse, **named)
    bias = -np.broadcast_to(slopes, (BATCH, HEADS))[B, H] * np.abs(P - J)
    assert_gradients(found, dout, q, k, v, causal=causal, bias=bias)
    for one, other in zip(found, attune.flash_attn_backward(dout, q, k, v, out, lse, **named)):
        np.testing.assert_array_equal(one, other)


def parts_of(found, rows, keys):
    """dq, dk and dv of one sequence, as a batch."""
    dq, dk, dv = found
    return dq[None, rows], dk[None, keys], dv[None, keys]


def test_sequences_of_a_ragged_batch_have_their_own_slopes_and_documents():
    dout, q, k, v = inputs(batch=1, seqlen_q=70, seqlen_k=80)
    starts_q, starts_k = np.array([0, 30, 70], np.int32), np.array([0, 45, 80], np.int32)
    lengths = {
        "cu_seqlens_q": starts_q,
        "cu_seqlens_k": starts_k,
        "max_seqlen_q": 40,
        "max_seqlen_k": 45,
    }
    rows = [x[0] for x in (dout, q, k, v)]
    named = {"mask": "k <= p and doc[b, p] == doc[b, k]", "params": {"doc": DOCUMENTS}, **lengths}
    slopes = {"causal": True, "alibi_slopes": SLOPES, **lengths}
    out, lse = attune.attention(*rows[1:], return_lse=True, **named)
    by_documents = attune.flash_attn_backward(*rows, out, lse, **named)
    out, lse, _ = attune.flash_attn_varlen_func(*rows[1:], return_attn_probs=True, **slopes)
    by_slopes = attune.flash_attn_backward(*rows, out, lse, **slopes)
    for b in range(2):
        a, c = slice(*starts_q[b : b + 2]), slice(*starts_k[b : b + 2])
        own = dout[:, a], q[:, a], k[:, c], v[:, c]
        keys = np.arange(c.stop - c.start)
        at = (np.arange(a.stop - a.start) + len(keys) - (a.stop - a.start))[:, None]
        seen = DOCUMENTS[b][at] == DOCUMENTS[b][keys]
        assert_gradients(parts_of(by_documents, a, c), *own, causal=True, seen=seen)
        bias = SLOPES[b][:, None, None] * (keys - at)
        assert_gradients(parts_of(by_slopes, a, c), *own, causal=True, bias=bias)


@pytest.mark.parametrize("keys", [50, 30])  # of 30 the first queries see none
def test_a_sink_is_in_the_lse_that_gradients_take(keys):
    dout, q, k, v = inputs(seqlen_k=keys)
    sink = np.array([-2.0, 0.5, 3.0, 6.0], "float32")
    named = {"causal": True, "learnable_sink": sink, "return_attn_probs": True}
    out, lse, _ = attune.flash_attn_func(q, k, v, **named)
    dlse = np.random.default_rng(5).standard_normal(lse.shape).astype("float32")
    found = attune.flash_attn_backward(dout, q, k, v, out, lse, dsoftmax_lse=dlse, causal=True)
    assert_gradients(found, dout, q, k, v, dlse=dlse, causal=True, sink=sink)
    # As the documentation has it.
    D = (dout.astype("float64") * out).sum(-1).transpose(0, 2, 1)
    own = (np.exp(sink[:, None] - lse) * (dlse - D)).sum((0, 2))
    *_, exact = gradients(dout, q, k, v, dlse=dlse, causal=True, sink=sink)
    np.testing.assert_allclose(own, exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"score": "tanh(s)"}, NotImplementedError, r"score is tanh\(s\), whose derivative by s"),
        ({"score": "select(s > 0, s, -inf)"}, NotImplementedError, "derivative by s is not one"),
        ({"score": "s * 2"}, NotImplementedError, "whose derivative by s is not one"),
        ({"score": "s - k", "softcap": 2.0}, NotImplementedError, "soft cap"),
        ({"alibi_slopes": SLOPES, "softcap": 2.0}, NotImplementedError, "soft cap"),
        ({"score": "s - k", "alibi_slopes": SLOPES}, ValueError, "alibi_slopes are given with a"),
        ({"alibi_slopes": SLOPES[:1]}, ValueError, r"alibi_slopes has shape \(1, 4\)"),
        ({"mask": "k <= pp"}, ValueError, "mask:1:6: there is no name pp"),
    ],
    ids=str,
)
def test_what_has_no_gradient_is_named(named, error, message):
    dout, q, k, v = inputs()
    lse = np.zeros((BATCH, HEADS, ROWS), "float32")
    with pytest.raises(error, match=message):
        attune.flash_attn_backward(dout, q, k, v, q, lse, **named)
