"""Texts of expressions: what traced functions become, what parameters are declared as, and what is wrong in them."""

import math

import numpy as np
import pytest
from test_expressions import SLOPES, check, problem, reference

import attune
from attune._texts import complete
from attune._tracing import trace

BIAS = np.random.default_rng(3).standard_normal((4, 40)).astype("float32")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda s, k, p: s - 2 * abs(k - p) // 3 % 5, "s - 2 * abs(k - p) // 3 % 5"),
        (lambda s, k, p: s - (k - p) - (p - 1) * (k + 1), "s - (k - p) - (p - 1) * (k + 1)"),
        (lambda s, k: s * (2 * s) / (s / -3.0), "s * (2 * s) / (s / -3.0)"),
        (lambda s, k: -(s + 1) * -(-s), "-(s + 1) * --s"),
        (lambda k, p, q: ~(k <= p) | (q != 3), "not k <= p or q != 3"),
        (lambda k, p, q: ~((k <= p) | (q != 3)) & ~~(k < 1), "not (k <= p or q != 3) and not not k < 1"),
        (lambda k, p, q: (k < p) & ((k < q) | (k < 3)), "k < p and (k < q or k < 3)"),
        (lambda s, h: attune.select(h < 2, attune.tanh(s / 3.0), -1.5), "select(h < 2, tanh(s / 3.0), -1.5)"),
        (lambda s, k: s * np.float64(0.5) - np.int64(2) * attune.real(k), "s * 0.5 - 2 * real(k)"),
        (lambda s, k, p: attune.select(k <= p, s, -math.inf), "select(k <= p, s, -inf)"),
        (lambda s: attune.minimum(s, float("inf")), "min(s, inf)"),
    ],
)
def test_functions_are_traced_into_texts_with_the_parentheses_that_they_need(function, text):
    assert trace(function) == text


def test_what_cannot_be_traced_is_refused():
    with pytest.raises(TypeError, match="no truth value"):
        trace(lambda s, k, p: s if k <= p else 0)
    with pytest.raises(TypeError, match="x is no name of an expression"):
        trace(lambda s, x: s + x)
    with pytest.raises(TypeError, match=r"slope is an array; an expression looks it up by indices"):
        trace(lambda s, slope: s + slope, ("slope",))
    with pytest.raises(TypeError, match="no word for nan"):
        trace(lambda s: s + math.nan)


def test_a_traced_sum_of_two_hundred_terms_is_an_expression():
    q, k, v = problem()
    weights = np.linspace(-1, 1, 200)

    def score(s, k):
        for i, weight in enumerate(weights):
            s = s + weight * (k + i) / 40
        return s

    found = attune.attention(q, k, v, score=score, return_lse=True)
    every = (weights[:, None] * (np.arange(40) + np.arange(200)[:, None]) / 40).sum(0)
    check(found, reference(q, k, v, lambda s, i, p, j, h, b: s + every[j], lambda *at: at[2] >= 0))


def test_one_array_is_looked_up_under_two_indices_and_in_both_texts():
    q, k, v = problem()
    found = attune.attention(
        q,
        k,
        v,
        score="s + bias[h, k]",
        mask="bias[0, p] > 0 or bias[h, k] < 1",
        params={"bias": BIAS},
        return_lse=True,
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, i, p, j, h, b: s + BIAS[h, j],
        lambda i, p, j, h, b: (BIAS[0, p] > 0) | (BIAS[h, j] < 1),
    )
    check(found, expected)


@pytest.mark.parametrize(
    ("score", "mask", "where"),
    [
        ("s + bias[h, k]", "bias[h, p] > 0", "fp32[head, position]"),
        ("s + bias[0, k]", "bias[h, p] > 0", "fp32[head, position]"),
        ("s + bias[h, q] * bias[h, k]", None, "fp32[head, position]"),
        ("s + bias[h, k // 2]", "bias[h, 3] > 0", "fp32[head, 40]"),
        ("s", "bias[0, k] > 0", "fp32[4, position]"),
    ],
)
def test_what_counts_a_dimension_is_declared_once_for_both_texts(score, mask, where):
    for text in complete(score, mask, {"bias": BIAS}):
        assert text is None or "bias" not in text or text.endswith(f" where bias: {where}")


def test_a_text_takes_over_what_the_other_says_of_an_array():
    declared = "s + bias[h, k] where bias: fp32[4, position]"
    texts = complete(declared, "bias[h, p] > 0", {"bias": BIAS})
    assert texts == (declared, "bias[h, p] > 0 where bias: fp32[4, position]")
    params = {"bias": BIAS}
    q, k, v = problem()
    attune.attention(q, k, v, score=declared, mask="bias[h, p] > 0", params=params)
    with pytest.raises(ValueError, match=r"the score has bias: fp32\[4, position\], the mask"):
        other = "bias[h, p] > 0 where bias: fp32[head, position]"
        attune.attention(q, k, v, score=declared, mask=other, params=params)


def test_a_dimension_that_two_things_count_is_a_conflict_by_name():
    q, k, v = problem()
    message = r"params\['bias'\] is indexed by b \(batch\) and by h \(head\) in its dimension 0"
    with pytest.raises(ValueError, match=message):
        attune.attention(q, k, v, score="s + bias[h, k]", mask="bias[b, p] > 0", params={"bias": BIAS})
    # As the message says.
    attune.attention(q, k, v, score="s + bias[h, k]", mask="bias[b + 0, p] > 0", params={"bias": BIAS})


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"params": [SLOPES]}, TypeError, r"params is a list; it must map names to arrays"),
        ({"params": {3: SLOPES}}, TypeError, r"params has the name 3, a int; it must be a text"),
        ({"params": {"2x": SLOPES}}, ValueError, "params has the name '2x', which no expression"),
        ({"params": {"a b": SLOPES}}, ValueError, "params has the name 'a b', which no expression"),
        ({"params": {"": SLOPES}}, ValueError, "params has the name '', which no expression"),
        ({"params": {"inf": SLOPES}}, ValueError, "params has the name 'inf', which no expression"),
        ({"params": {"h": SLOPES}}, ValueError, "params has the name 'h', which no expression"),
        ({"params": {"a\0": SLOPES}}, ValueError, r"params has the name 'a\\x00', which no"),
        ({"params": {"t": 3.0}, "score": "s + t[h]"}, TypeError, r"params\['t'\] is a float; it must"),
        ({"score": "s + 1\0 + 2"}, ValueError, "score:1:6: the control character 0x00 stands in"),
        ({"mask": "k <= p\n\0"}, ValueError, "mask:2:1: the control character 0x00 stands in the"),
        ({"score": "s + \x1b"}, ValueError, "score:1:5: the control character 0x1b stands in the"),
        ({"score": "s + \ud800"}, UnicodeEncodeError, "surrogates"),
        (
            {"score": "s + t[h + 65536]", "params": {"t": SLOPES}},
            ValueError,
            r"score:1:7: this index of t cannot be in range: it is at least 65536; from 0 to 3",
        ),
        (
            {"mask": "d[k + 16777216] > 0 where d: int32[position]", "params": {"d": np.ones(40, "int32")}},
            ValueError,
            r"mask:1:3: this index of d cannot be in range: it is at least 16777216; from 0 to 16777215",
        ),
        (
            {"mask": "d[k] > 0", "params": {"d": np.broadcast_to(np.int32(1), 2**24 + 1).copy()}},
            ValueError,
            "params: extent 0 of d is 16777217; it must be at most 16777216",
        ),
        (
            {"score": "s where t: fp32[99999999]"},
            ValueError,
            "score:1:17: '99999999' is no dimension; .* or a number from 1 to 16777216",
        ),
    ],
    ids=repr,
)
def test_what_is_wrong_in_texts_and_parameters_is_named(named, error, message):
    q, k, v = problem()
    with pytest.raises(error, match=message):
        attune.attention(q, k, v, **{"mask": "k <= p"} | named)
