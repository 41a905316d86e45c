"""Expressions, slopes and sinks of JAX arrays: XLA calls the emulator. Skipped where JAX is missing."""

import numpy as np
import pytest
from conftest import random_array

import attune

jax = pytest.importorskip("jax")
jnp = jax.numpy

BATCH, ROWS, KEYS, HEADS, HEADS_KV, DIM = 2, 20, 40, 4, 2, 64
SHAPES = ((BATCH, ROWS, HEADS, DIM), (BATCH, KEYS, HEADS_KV, DIM), (BATCH, KEYS, HEADS_KV, DIM))
SLOPES = np.random.default_rng(7).random((BATCH, HEADS)).astype("float32")
DOCUMENTS = np.sort(np.random.default_rng(8).integers(0, 4, (BATCH, KEYS))).astype("int32")
SINK = np.array([-2.0, 0.5, 3.0, 6.0], "float32")

CALLS = {
    "slopes": (attune.flash_attn_func, {"causal": True}, {"alibi_slopes": SLOPES}),
    "sink": (attune.flash_attn_func, {"causal": True}, {"learnable_sink": SINK}),
    "documents": (attune.attention, {"mask": "doc[b, p] == doc[b, k]"}, {"doc": DOCUMENTS}),
    "a function, two arrays and a sink": (
        attune.attention,
        {
            "score": lambda s, k, p, b, h, slope: s + slope[b, h] * (k - p),
            "mask": lambda b, p, k, doc: (k <= p) & (doc[b, p] == doc[b, k]),
        },
        {"slope": SLOPES, "doc": DOCUMENTS, "learnable_sink": SINK},
    ),
    "no array": (attune.attention, {"score": "s + 0.01 * h * (k % 3)", "mask": "k % 5 != b"}, {}),
}
gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")
each_call = pytest.mark.parametrize("which", CALLS)


def inputs():
    return [random_array(shape, "float16", seed) for seed, shape in enumerate(SHAPES)]


def called(which):
    """A function of (q, k, v) and the arrays by their names; its results are output and LSE."""
    function, options, _ = CALLS[which]

    def call(arrays, named):
        own = {name: x for name, x in named.items() if name in ("alibi_slopes", "learnable_sink")}
        if function is attune.flash_attn_func:
            return function(*arrays, **options, **own, return_attn_probs=True)[:2]
        params = {name: x for name, x in named.items() if name not in own}
        return function(*arrays, **options, **own, params=params, return_lse=True)

    return call


def gradients_by(which, arrays, named, dout, dlse):
    """Those of q, k and v, from NumPy arrays."""
    _, options, _ = CALLS[which]
    out, lse = called(which)(arrays, named)
    more = {"dsoftmax_lse": dlse, **options}
    params = {name: x for name, x in named.items() if name != "learnable_sink"}
    if "alibi_slopes" in params:
        more["alibi_slopes"] = params.pop("alibi_slopes")
    if params:
        more["params"] = params
    return attune.flash_attn_backward(dout, *arrays, out, lse, **more), out, lse


def drawn(out, lse):
    """Gradients of the two results."""
    return random_array(out.shape, out.dtype, 7), random_array(lse.shape, np.float32, 8)


@each_call
def test_compiled_they_have_the_bits_of_numpy_arrays(emulated, which):
    arrays, named = inputs(), CALLS[which][2]
    found = jax.jit(called(which))(arrays, named)
    for one, right in zip(found, called(which)(arrays, named)):
        np.testing.assert_array_equal(np.asarray(one), right)


@each_call
def test_gradients_are_those_of_numpy_arrays(emulated, which):
    arrays, named = inputs(), CALLS[which][2]
    dout, dlse = drawn(*called(which)(arrays, named))
    expected, out, lse = gradients_by(which, arrays, named, dout, dlse)

    @jax.jit
    def gradients(arrays, named):
        sink = {name: x for name, x in named.items() if name == "learnable_sink"}
        _, of = jax.vjp(lambda x, sink: called(which)(x, named | sink), arrays, sink)
        return of((jnp.asarray(dout), jnp.asarray(dlse)))

    found, of_sink = gradients(arrays, named)
    for one, right in zip(found, expected):
        np.testing.assert_array_equal(np.asarray(one), right)
    if of_sink:
        D = (dout.astype("float64") * out).sum(-1).transpose(0, 2, 1)
        own = (np.exp(SINK[:, None] - lse) * (dlse - D)).sum((0, 2))
        np.testing.assert_allclose(of_sink["learnable_sink"], own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_sink_of_16_bits_has_a_gradient_of_its_dtype(emulated, dtype):
    arrays = inputs()
    sink = jnp.asarray(SINK, dtype)

    def loss(sink, arrays):
        return attune.flash_attn_func(*arrays, learnable_sink=sink).astype("float32").sum()

    found = jax.jit(jax.grad(loss))(sink, arrays)
    right = jax.jit(jax.grad(loss))(jnp.asarray(SINK), arrays)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.asarray(found, "float32"), right, rtol=0.02)


def test_a_gradient_of_the_lse_alone_is_that_of_both(emulated):
    def gradients(weight):
        def loss(arrays, named):
            out, lse = called("sink")(arrays, named)
            return lse.sum() + (0 if weight is None else weight * out.astype("float32").sum())

        return jax.jit(jax.grad(loss))(inputs(), CALLS["sink"][2])

    for alone, both in zip(gradients(None), gradients(0)):
        np.testing.assert_array_equal(np.asarray(alone), np.asarray(both))


@gpu
@each_call
def test_on_a_gpu_they_agree_with_the_emulator(which):
    arrays, named = inputs(), CALLS[which][2]
    dout, dlse = drawn(*called(which)(arrays, named))
    expected, *results = gradients_by(which, arrays, named, dout, dlse)
    on_gpu = jax.tree.map(jnp.asarray, (arrays, named, (dout, dlse)))
    found, of = jax.vjp(lambda arrays: called(which)(arrays, on_gpu[1]), on_gpu[0])
    (found_gradients,) = of(on_gpu[2])
    for one, right in zip((*found, *found_gradients), (*results, *expected)):
        np.testing.assert_allclose(np.asarray(one), right, atol=5e-3, rtol=5e-3)


@each_call
def test_vmap_is_each_alone(emulated, which):
    arrays, named = inputs(), CALLS[which][2]
    more = [np.stack([x, x[::-1]]) for x in arrays]
    found = jax.jit(jax.vmap(called(which), (0, None)))(more, named)
    for i in range(2):
        for one, right in zip(found, called(which)([x[i] for x in more], named)):
            np.testing.assert_array_equal(np.asarray(one[i]), right)


def traced(function, *arrays, **named):
    def call(arrays, named):
        return function(arrays, named)

    return jax.eval_shape(call, list(arrays) or [jnp.zeros(x, "float16") for x in SHAPES], named)


@pytest.mark.parametrize(
    ("options", "named", "error", "message"),
    [
        ({"score": "s + other"}, {}, ValueError, "score:1:5: .*other"),
        ({"score": "s + bias[h] where bias: fp32[head]"}, {}, ValueError, "bias is missing"),
        ({"mask": "doc[b, k] == 1"}, {"doc": DOCUMENTS[:, :9]}, ValueError, "of doc is 9"),
        (
            {"mask": "doc[b, k] == 1"},
            {"doc": DOCUMENTS.astype("int8")},
            TypeError,
            "has dtype int8; it must be float32 or int32",
        ),
        ({"softcap": 1.0, "cache_seqlens": 9}, {}, NotImplementedError, "q is a jax.Array; attent"),
    ],
)
def test_mistakes_are_named_while_tracing(options, named, error, message):
    def call(arrays, named):
        return attune.attention(*arrays, params=named, **options)

    with pytest.raises(error, match=message):
        traced(call, **named)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("alibi_slopes", SLOPES[:, :3], r"alibi_slopes has shape \(2, 3\); it must be \(4,\) or"),
        ("learnable_sink", SINK[:3], r"learnable_sink has shape \(3,\); it must be \(4,\)"),
    ],
)
def test_arrays_of_another_shape_are_named_while_tracing(name, value, message):
    def call(arrays, named):
        return attune.flash_attn_func(*arrays, **named)

    with pytest.raises(ValueError, match=message):
        traced(call, **{name: value})


def test_arrays_of_another_framework_are_refused():
    def call(arrays, _):
        return attune.flash_attn_func(*arrays, alibi_slopes=SLOPES)

    with pytest.raises(TypeError, match="alibi_slopes is a numpy.ndarray; it must be a jax.Array"):
        traced(call)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "tanh(s)"}, r"score is tanh\(s\), whose derivative by s"),
        ({"score": "s - k", "softcap": 2.0}, "soft cap"),
    ],
)
def test_scores_whose_gradients_are_unknown_are_refused_under_gradients_alone(options, message):
    def loss(arrays, _):
        return attune.attention(*arrays, **options).astype("float32").sum()

    traced(loss)
    with pytest.raises(NotImplementedError, match=message):
        traced(jax.grad(loss))


def test_a_gradient_of_an_array_of_expressions_is_refused_and_not_zero():
    def loss(slopes, arrays):
        return attune.flash_attn_func(*arrays, alibi_slopes=slopes).astype("float32").sum()

    def of_slopes(arrays, named):
        return jax.grad(loss)(named["slopes"], arrays)

    def of_both(arrays, named):
        stopped = jax.lax.stop_gradient
        return jax.grad(lambda x: loss(stopped(x[0]), x[1]))((named["slopes"], arrays))

    with pytest.raises(NotImplementedError, match="alibi_slopes is differentiated, and has no gr"):
        traced(of_slopes, slopes=SLOPES)
    slopes, _ = traced(of_both, slopes=SLOPES)
    assert slopes.shape == SLOPES.shape


def test_second_derivatives_are_refused():
    def slope(arrays, named):
        def loss(sink):
            out = attune.flash_attn_func(*arrays, learnable_sink=sink)
            return out.astype("float32").sum()

        return jax.grad(lambda sink: jax.grad(loss)(sink).sum())(named["sink"])

    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        traced(slope, sink=SINK)
