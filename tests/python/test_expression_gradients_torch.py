"""Gradients through slopes, expressions and sinks, as autograd and torch.compile see them. Skipped, by name, without
PyTorch.

Without a GPU the kernels run in the emulator, behind the same operators.
"""

import pytest

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from test_backward_torch import gpu, gradients, inputs, with_lse

from attune.torch import _ops

pytest_plugins = "torch_device"

SLOPES = torch.tensor([[0.5, 0.25, 0.125, 0.0625], [1.0, 0.3, 0.2, 0.1]])
DOCUMENTS = torch.tensor([[0] * 20 + [1] * 25 + [2] * 5, [0] * 13 + [1] * 37], dtype=torch.int32)
PREFIX = torch.tensor([30, 0], dtype=torch.int32)
SINKS = torch.tensor([-2.0, 0.5, 3.0, 6.0])


def sinks_of(device):
    """A tensor of its own, which may be given a gradient."""
    return SINKS.clone().to(device)


def formula(bias=None, seen=None, sequences=None):
    """(out, lse) of (q, k, v) or (q, k, v, sinks), of any dtype: bias(p, k, b, h) is added, and what seen(p, k, b) hides.

    `sequences` are the (rows, keys) of a ragged batch; its other rows give zeros.
    """

    def attend(b, q, k, v, sinks):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[2] ** -0.5
        j = torch.arange(len(k), device=q.device)
        p = torch.arange(len(q), device=q.device)[:, None] + len(k) - len(q)
        h = torch.arange(q.shape[1], device=q.device)[:, None, None]
        if bias is not None:
            scores = scores + bias(p, j, b, h).to(scores)
        if seen is not None:
            scores = scores.masked_fill(~seen(p, j, b), float("-inf"))
        if sinks is not None:
            scores = torch.cat([scores, sinks.to(scores)[:, None, None].expand(-1, len(q), 1)], 2)
        weights = scores.softmax(2)[..., : len(k)]
        return torch.einsum("hij,jhd->ihd", weights, v), scores.logsumexp(2)

    def whole(q, k, v, sinks=None):
        if sequences is None:
            results = [attend(b, *parts, sinks) for b, parts in enumerate(zip(q, k, v))]
            return tuple(torch.stack(one) for one in zip(*results))
        out = torch.zeros_like(q)
        lse = torch.zeros(q.shape[1], q.shape[0], dtype=q.dtype, device=q.device)
        for b, (rows, keys) in enumerate(sequences):
            out[rows], lse[:, rows] = attend(b, q[rows], k[keys], v[keys], sinks)
        return out, lse

    return whole


def assert_gradients(ours, right, tensors):
    """At most three times the error of the same formula in the storage type."""
    found = gradients(ours, tensors)
    exact = gradients(right, tensors, dtype=torch.float64)
    near = gradients(right, tensors)
    for one, wanted, other in zip(found, exact, near):
        assert (one - wanted).abs().max() <= 3 * (other - wanted).abs().max()


def slopes_by(distance):
    def bias(p, k, b, h):
        return SLOPES.to(p.device)[b][h] * distance(p, k)

    return bias


def documents(p, k, b):
    own = DOCUMENTS.to(p.device)[b]
    return (k <= p) & (own[p] == own[k])


#: (score, mask, the names of their parameters, what they do to scores)
CASES = {
    "slopes": (
        "s - slope[b, h] * abs(p - k)",
        None,
        {"slope": SLOPES},
        {"bias": slopes_by(lambda p, k: -(p - k).abs())},
    ),
    "causal, documents": (
        None,
        lambda k, p, b, doc: (k <= p) & (doc[b, p] == doc[b, k]),
        {"doc": DOCUMENTS},
        {"seen": documents},
    ),
    "prefix": (
        lambda s, h, k: s - 0.05 * h * (k % 3),
        lambda k, p, b, prefix: (k <= p) | (k < prefix[b]),
        {"prefix": PREFIX},
        {
            "bias": lambda p, k, b, h: -0.05 * h * (k % 3),
            "seen": lambda p, k, b: (k <= p) | (k < PREFIX.to(p.device)[b]),
        },
    ),
}


def expressed(device, score, mask, params, **options):
    params = {name: one.to(device) for name, one in params.items()}

    def attend(q, k, v, sinks=None):
        return library.attention(
            q,
            k,
            v,
            score=score,
            mask=mask,
            params=params,
            learnable_sink=sinks,
            return_lse=True,
            **options,
        )

    return attend


@pytest.mark.parametrize("deterministic", [None, False])
@pytest.mark.parametrize("which", CASES)
def test_expressions_have_the_gradients_of_the_formula(torch_device, which, deterministic):
    *expressions, effect = CASES[which]
    ours = expressed(torch_device, *expressions, deterministic=deterministic)
    assert_gradients(ours, formula(**effect), inputs(torch_device))


def ragged(device):
    """Tensors, the arguments of a call, and the rows and keys that its two sequences use: the others are of none."""
    q, k, v = (x.detach().flatten(0, 1) for x in inputs(device))
    named = {
        "cu_seqlens_q": [5, 33, 75],
        "cu_seqlens_k": [0, 41, 91],
        "seqused_q": [20, 42],
        "seqused_k": [41, 44],
    }
    named = {
        name: torch.tensor(one, dtype=torch.int32, device=device) for name, one in named.items()
    }
    sequences = (slice(5, 25), slice(0, 41)), (slice(33, 75), slice(41, 85))
    return (q, k, v), {**named, "max_seqlen_q": 42, "max_seqlen_k": 50}, sequences


def of_sequences(function, sequences):
    """The same; what it leaves unwritten, gradients apart, is zeros."""

    def attend(*tensors):
        out, lse = function(*tensors)
        rows = torch.zeros(out.shape[0], dtype=torch.bool, device=out.device)
        for one, _ in sequences:
            rows[one] = True
        return out.where(rows[:, None, None], 0), lse.where(rows, 0)

    return attend


def used(gradients, sequences):
    """What of the gradients of q, k and v is written."""
    dq, dk, dv, *others = gradients
    for rows, keys in sequences:
        yield from (dq[rows], dk[keys], dv[keys])
    yield from others


def assert_ragged_gradients(ours, right, tensors, sequences):
    found = used(gradients(of_sequences(ours, sequences), tensors), sequences)
    exact = used(gradients(right, tensors, dtype=torch.float64), sequences)
    near = used(gradients(right, tensors), sequences)
    for one, wanted, other in zip(found, exact, near):
        assert (one - wanted).abs().max() <= 3 * (other - wanted).abs().max()


@pytest.mark.parametrize("which", ["slopes", "causal, documents"])
def test_ragged_batches(torch_device, which):
    *expressions, effect = CASES[which]
    tensors, lengths, sequences = ragged(torch_device)
    ours = expressed(torch_device, *expressions, **lengths)
    assert_ragged_gradients(ours, formula(**effect, sequences=sequences), tensors, sequences)


@pytest.mark.parametrize("of_heads", [False, True])
def test_slopes_as_flash_attn_has_them(torch_device, of_heads):
    slopes = (SLOPES[0] if of_heads else SLOPES).to(torch_device)

    def effect(p, k, b, h):
        return -slopes.expand(2, 4)[b][h] * (p - k).abs()

    named = {"alibi_slopes": slopes, "causal": True}
    masked = {"bias": effect, "seen": lambda p, k, b: k <= p}
    tensors = inputs(torch_device)
    assert_gradients(with_lse(library.flash_attn_func, **named), formula(**masked), tensors)
    tensors, lengths, sequences = ragged(torch_device)
    ours = with_lse(library.flash_attn_varlen_func, **lengths, **named)
    assert_ragged_gradients(ours, formula(**masked, sequences=sequences), tensors, sequences)


def with_sinks(function, **options):
    def attend(q, k, v, sinks):
        return function(q, k, v, learnable_sink=sinks, return_attn_probs=True, **options)[:2]

    return attend


def assert_near(found, exact):
    for one, wanted in zip(found, exact, strict=True):
        torch.testing.assert_close(one, wanted, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sinks_have_gradients_themselves(torch_device, dtype):
    tensors = (*inputs(torch_device), SINKS.to(torch_device, dtype))
    causal = {"seen": lambda p, k, b: k <= p}
    exact = gradients(formula(**causal), tensors, dtype=torch.float64)
    assert_near(gradients(with_sinks(library.flash_attn_func, causal=True), tensors), exact)
    assert_near(gradients(expressed(torch_device, None, "k <= p", {}), tensors), exact)


def test_sinks_of_a_ragged_batch_take_nothing_from_rows_of_no_sequence(torch_device):
    tensors, lengths, sequences = ragged(torch_device)
    tensors = (*tensors, SINKS.to(torch_device))
    exact = gradients(formula(sequences=sequences), tensors, dtype=torch.float64)
    ours = of_sequences(with_sinks(library.flash_attn_varlen_func, **lengths), sequences)
    found = gradients(ours, tensors)
    assert_near(used(found, sequences), list(used(exact, sequences)))
    # The gradients of rows that no sequence has are not looked at.
    copies = [x.detach().clone().requires_grad_() for x in tensors]
    out, lse = with_sinks(library.flash_attn_varlen_func, **lengths)(*copies)
    wild = torch.zeros_like(out), torch.zeros_like(lse)
    wild[0][:5], wild[1][:, 25:33] = float("nan"), float("nan")
    (dsink,) = torch.autograd.grad((out, lse), copies[3:], wild)
    assert not dsink.any()


def test_the_rows_of_a_ragged_batch_that_are_written():
    starts = torch.tensor([2, 5, 5, 9], dtype=torch.int32)
    used = torch.tensor([2, 0, 4], dtype=torch.int32)
    found = [
        _ops._written_rows(11, starts, 3, one).nonzero().flatten().tolist() for one in (None, used)
    ]
    assert found == [[2, 3, 4, 5, 6, 7], [2, 3, 5, 6, 7]]
    assert not _ops._written_rows(4, starts[:1], 3, None).any()  # of no sequence


@pytest.mark.parametrize("expressions", [False, True])
def test_a_sink_alone_may_require_a_gradient(torch_device, expressions):
    tensors = [x.detach() for x in inputs(torch_device)]
    sinks = sinks_of(torch_device).requires_grad_()
    sinked = with_sinks(library.flash_attn_func)
    ours = expressed(torch_device, None, "k <= p", {}) if expressions else sinked
    ours(*tensors, sinks)[0].float().square().sum().backward()
    assert sinks.grad.all()


def test_a_query_that_sees_no_key_gives_its_gradient_to_the_sink(torch_device):
    tensors = (*inputs(torch_device, seqlen_k=30), SINKS.to(torch_device))
    exact = gradients(formula(seen=lambda p, k, b: k <= p), tensors, dtype=torch.float64)
    assert_near(gradients(with_sinks(library.flash_attn_func, causal=True), tensors), exact)


def test_the_same_bits_every_time(torch_device):
    *expressions, _ = CASES["prefix"]
    tensors = (*inputs(torch_device), SINKS.to(torch_device))
    ours = expressed(torch_device, *expressions)
    for one, other in zip(gradients(ours, tensors), gradients(ours, tensors)):
        assert torch.equal(one, other)


def test_the_operator_keeps_its_schema_and_its_fake_and_gradients_agree(torch_device):
    score, _, params, _ = CASES["slopes"]
    tensors = inputs(torch_device)
    arrays = [one.to(torch_device) for one in params.values()]
    torch.library.opcheck(
        torch.ops.attune.attention_train.default,
        (*tensors, score, "k <= p", list(params), arrays),
        {"softmax_scale": 0.1, "learnable_sink": sinks_of(torch_device).requires_grad_()},
    )


def test_compiled_in_one_graph(torch_device, backend):
    _, mask, params, _ = CASES["causal, documents"]
    tensors = (*inputs(torch_device), sinks_of(torch_device).requires_grad_())
    params = {name: one.to(torch_device) for name, one in params.items()}
    slopes = SLOPES.to(torch_device)

    def step(q, k, v, sinks):
        out = library.attention(q * 2, k, v, mask=mask, params=params, learnable_sink=sinks)
        return library.flash_attn_func(out, k, v, alibi_slopes=slopes).square().sum()

    expected = torch.autograd.grad(step(*tensors), tensors)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for one, right in zip(torch.autograd.grad(compiled(*tensors), tensors), expected):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)


def test_ragged_batches_with_sinks_compiled_with_dynamic_shapes(torch_device, backend):
    tensors, lengths, sequences = ragged(torch_device)
    ours = of_sequences(with_sinks(library.flash_attn_varlen_func, **lengths), sequences)
    compiled = torch.compile(ours, fullgraph=True, backend=backend, dynamic=True)
    tensors = (*tensors, SINKS.to(torch_device))
    found, expected = (used(gradients(one, tensors), sequences) for one in (compiled, ours))
    for one, right in zip(found, expected, strict=True):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"score": "tanh(s)"}, r"score is tanh\(s\), whose derivative by s is not one"),
        (
            {"score": lambda s, k: attune.select(k < 3, s, 2 * s)},
            "whose derivative by s is not one",
        ),
        ({"score": "s - k", "softcap": 2.0}, "soft cap"),
        ({"mask": "k <= p", "cache_seqlens": 20}, "attention with keys in a cache"),
    ],
    ids=["tanh", "select", "softcap", "cache"],
)
def test_expressions_without_gradients_are_refused_before_anything_runs(
    torch_device, named, message
):
    q, k, v = inputs(torch_device)
    with pytest.raises(NotImplementedError, match=message):
        library.attention(q[:, -4:], k, v, **named)
    with torch.no_grad():
        library.attention(q[:, -4:], k, v, **named)


def test_a_score_without_gradient_is_refused_by_what_was_compiled(torch_device, backend):
    compiled = torch.compile(library.attention, fullgraph=True, backend=backend)
    with pytest.raises(NotImplementedError, match="whose derivative by s is not one"):
        compiled(*inputs(torch_device), score="s * s")


def test_gradients_of_slopes_and_parameters_are_refused(torch_device):
    q, k, v = (x.detach() for x in inputs(torch_device))
    slopes = SLOPES.to(torch_device).requires_grad_()
    with pytest.raises(NotImplementedError, match=r"params\['slope'\] requires a gradient"):
        library.attention(q, k, v, score="s + slope[b, h]", params={"slope": slopes})
    with pytest.raises(NotImplementedError, match="alibi_slopes requires a gradient"):
        library.flash_attn_func(q, k, v, alibi_slopes=slopes)
    with pytest.raises(NotImplementedError, match="attention with alibi_slopes and a softcap"):
        library.flash_attn_func(q.requires_grad_(), k, v, alibi_slopes=slopes.detach(), softcap=1.0)


@gpu
def test_attune_itself_differentiates():
    *expressions, effect = CASES["prefix"]
    score, mask, params = expressions
    params = {name: one.cuda() for name, one in params.items()}

    def ours(q, k, v):
        return attune.attention(q, k, v, score=score, mask=mask, params=params, return_lse=True)

    assert_gradients(ours, formula(**effect), inputs("cuda"))
    tensors = (*inputs("cuda"), SINKS.cuda())
    exact = gradients(formula(), tensors, dtype=torch.float64)
    assert_near(gradients(with_sinks(attune.flash_attn_func), tensors), exact)
    with pytest.raises(NotImplementedError, match="whose derivative by s is not one"):
        attune.attention(*tensors[:3], score="s * 2")
    with pytest.raises(NotImplementedError, match="requires a gradient"):
        attune.attention(*(x[:, -4:] for x in tensors[:3]), mask="k <= p", cache_seqlens=20)
