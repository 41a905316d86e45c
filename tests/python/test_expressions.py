"""attune.attention: scores and masks as texts, and as Python functions that are traced into them."""

import numpy as np
import pytest

import attune
from attune._expressions import trace

SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], "float32")
DOCUMENTS = np.repeat(np.arange(4, dtype="int32"), 10)[None].repeat(2, 0)  # (batch, seqlen)


def problem(seed=1):
    random = np.random.default_rng(seed)
    q = random.standard_normal((2, 24, 4, 64)).astype("float16")
    k, v = random.standard_normal((2, 2, 40, 2, 64)).astype("float16")
    return q, k, v


def reference(q, k, v, score, mask):
    """In float64: score(s, q, p, k, h, b) and mask(q, p, k, h, b) of index arrays."""
    batch, rows, heads, dim = q.shape
    keys = k.shape[1]
    b, h, i, j = np.ix_(range(batch), range(heads), range(rows), range(keys))
    p = i + keys - rows
    k, v = (np.repeat(x.astype("float64"), heads // x.shape[2], 2) for x in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q.astype("float64"), k) / np.sqrt(dim)
    s = np.where(np.broadcast_to(mask(i, p, j, h, b), s.shape), score(s, i, p, j, h, b), -np.inf)
    largest = np.maximum(s.max(-1, keepdims=True), -1e300)
    weights = np.exp(s - largest)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (largest + np.log(total))[..., 0]
    out = np.einsum("bhij,bjhd->bihd", weights / np.maximum(total, 1e-300), v)
    return out, np.where(total[..., 0] > 0, lse, -np.inf)


def check(found, expected):
    out, lse = found
    np.testing.assert_allclose(out.astype("float64"), expected[0], atol=4e-3)
    np.testing.assert_allclose(lse, expected[1], atol=1e-3)


ALIBI = {
    "text": "s + slope[h] * (k - p)",
    "where": "s + slope[h] * (k - p) where slope: fp32[head]",
    "function": lambda s, slope, h, k, p: s + slope[h] * (k - p),
}
DOCUMENT = {
    "text": "k <= p and doc[b, p] == doc[b, k]",
    "function": lambda k, p, doc, b: (k <= p) & (doc[b, p] == doc[b, k]),
}


@pytest.mark.parametrize("form", ALIBI)
def test_slopes_are_added_however_they_are_said(form):
    q, k, v = problem()
    found = attune.attention(
        q, k, v, score=ALIBI[form], causal=True, params={"slope": SLOPES}, return_lse=True
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, i, p, j, h, b: s + SLOPES[h] * (j - p),
        lambda i, p, j, h, b: j <= p,
    )
    check(found, expected)


@pytest.mark.parametrize("form", DOCUMENT)
def test_queries_see_their_own_documents(form):
    q, k, v = problem(2)
    found = attune.attention(
        q, k, v, mask=DOCUMENT[form], params={"doc": DOCUMENTS}, return_lse=True
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, *_: s,
        lambda i, p, j, h, b: (j <= p) & (DOCUMENTS[b, p] == DOCUMENTS[b, j]),
    )
    check(found, expected)


def test_a_query_that_sees_nothing_gives_zeros_and_an_lse_of_minus_infinity():
    q, k, v = problem(3)
    out, lse = attune.attention(q, k, v, mask="k < q - 10", return_lse=True)
    assert not out[:, :10].any() and np.isneginf(lse[:, :, :10]).all()
    assert np.isfinite(lse[:, :, 12:]).all()


def test_functions_are_traced_into_texts():
    assert (
        trace(lambda s, k, p: s - 2 * abs(k - p) // 3 % 5)
        == "(s - (((2 * abs((k - p))) // 3) % 5))"
    )
    assert trace(lambda k, p, q: ~(k <= p) | (q != 3)) == "((not (k <= p)) or (q != 3))"
    assert trace(lambda s, h: attune.select(h < 2, attune.tanh(s / 3.0), -1.5)) == (
        "select((h < 2), tanh((s / 3.0)), (-1.5))"
    )
    with pytest.raises(TypeError, match="no truth value"):
        trace(lambda s, k, p: s if k <= p else 0)
    with pytest.raises(TypeError, match="x is no name of an expression"):
        trace(lambda s, x: s + x)


def test_what_is_wrong_is_named():
    q, k, v = problem()
    with pytest.raises(ValueError, match=r"score:1:5: there is no name slop; did you mean slope\?"):
        attune.attention(q, k, v, score="s + slop[h] + slope[h]", params={"slope": SLOPES})
    with pytest.raises(ValueError, match="params: slope is missing"):
        attune.attention(q, k, v, score="s + slope[h] where slope: fp32[head]")
    with pytest.raises(ValueError, match="extent 0 of slope is 3; it must be 4, its head"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": SLOPES[:3]})
    with pytest.raises(TypeError, match="float32 or int32"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": SLOPES.astype("float64")})
    with pytest.raises(ValueError, match="another type"):
        attune.attention(
            q, k, v, score="s + slope[h] where slope: int32[head]", params={"slope": SLOPES}
        )
    with pytest.raises(ValueError, match="the mask is an integer; it must be a boolean"):
        attune.attention(q, k, v, mask="k + p")
    with pytest.raises(ValueError, match="contiguous"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": np.repeat(SLOPES, 2)[::2]})


def test_a_bare_index_says_what_a_dimension_is_counted_by():
    q, k, v = problem(4)
    bias = np.random.default_rng(5).standard_normal((4, 9)).astype("float32")
    found = attune.attention(
        q,
        k,
        v,
        score="s + bias[h, min(max(p - k, 0), 8)]",
        params={"bias": bias},
        return_lse=True,
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, i, p, j, h, b: s + bias[h, np.clip(p - j, 0, 8)],
        lambda i, p, j, h, b: j >= 0,
    )
    check(found, expected)
