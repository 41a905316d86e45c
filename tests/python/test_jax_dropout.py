"""Dropout of JAX arrays, by a key: XLA calls the emulator. Skipped where JAX is missing."""

import numpy as np
import pytest
from conftest import random_array

import attune

jax = pytest.importorskip("jax")
jnp = jax.numpy
gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")

P = 0.3
SHAPES = ((2, 20, 4, 64), (2, 40, 2, 64), (2, 40, 2, 64))
KEY = jax.random.key(7)


def inputs():
    return [random_array(shape, "float16", seed) for seed, shape in enumerate(SHAPES)]


def state_of(key):
    """Seed and offset, as other arrays take them."""
    words = np.array(jax.random.bits(key, (4,), "uint32"))
    words[3] &= 2**12 - 1
    return words.view(np.int64)


def attend(arrays, key, **more):
    return attune.flash_attn_func(*arrays, P, causal=True, rng_state=key, **more)


def expected_of(arrays, key):
    """Of NumPy arrays: (out, lse)."""
    return attend(arrays, state_of(key), return_attn_probs=True)[:2]


@pytest.mark.parametrize("key", [KEY, jax.random.PRNGKey(7)], ids=["typed", "raw"])
def test_a_key_has_the_bits_of_its_seed_and_offset(emulated, key):
    out, lse = jax.jit(lambda arrays, key: attend(arrays, key, return_attn_probs=True)[:2])(
        inputs(), key
    )
    right, right_lse = expected_of(inputs(), key)
    np.testing.assert_array_equal(np.asarray(out), right)
    np.testing.assert_array_equal(np.asarray(lse), right_lse)
    other = jax.jit(attend)(inputs(), jax.random.fold_in(key, 1))
    assert np.abs(np.asarray(other) - right).max() > 0.1


@pytest.mark.parametrize("again", [lambda call: call, jax.checkpoint], ids=["kept", "recomputed"])
def test_gradients_see_the_same_mask(emulated, again):
    arrays = inputs()
    out, lse = expected_of(arrays, KEY)
    dout, dlse = random_array(out.shape, out.dtype, 7), random_array(lse.shape, np.float32, 8)
    right = attune.flash_attn_backward(
        *(dout, *arrays, out, lse),
        causal=True,
        dsoftmax_lse=dlse,
        dropout_p=P,
        rng_state=state_of(KEY),
    )

    @jax.jit
    def gradients(arrays, key):
        call = again(lambda *arrays: attend(arrays, key, return_attn_probs=True)[:2])
        return jax.vjp(call, *arrays)[1]((jnp.asarray(dout), jnp.asarray(dlse)))

    for one, other in zip(gradients(arrays, KEY), right, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_a_sink_beside_it_has_its_gradient(emulated):
    arrays = inputs()
    sink = np.array([0.5, -1, 2, 0], "float32")
    more = {"learnable_sink": sink, "return_attn_probs": True}
    out, lse, _ = attend(arrays, state_of(KEY), **more)
    dout = random_array(out.shape, out.dtype, 7)

    @jax.jit
    def gradient(sink, key, arrays):
        def call(sink):
            return attend(arrays, key, learnable_sink=sink)

        return jax.vjp(call, sink)[1](jnp.asarray(dout))[0]

    D = (dout.astype("float64") * out).sum(-1).transpose(0, 2, 1)
    own = -(np.exp(sink[:, None] - lse) * D).sum((0, 2))
    np.testing.assert_allclose(gradient(sink, KEY, arrays), own, rtol=1e-4, atol=1e-4)


def test_vmap_is_each_alone(emulated):
    arrays = [np.stack([x, x[::-1]]) for x in inputs()]
    keys = jax.random.split(KEY)
    found = jax.jit(jax.vmap(attend))(arrays, keys)
    same = jax.jit(jax.vmap(attend, (0, None)))(arrays, KEY)
    for i in range(2):
        own = [x[i] for x in arrays]
        np.testing.assert_array_equal(np.asarray(found[i]), expected_of(own, keys[i])[0])
        np.testing.assert_array_equal(np.asarray(same[i]), expected_of(own, KEY)[0])


def test_without_a_probability_a_key_changes_nothing(emulated):
    def call(arrays, key):
        return attune.flash_attn_func(*arrays, rng_state=key)

    found = jax.jit(call)(inputs(), KEY)
    np.testing.assert_array_equal(np.asarray(found), attune.flash_attn_func(*inputs()))


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (None, ValueError, "rng_state is None; with dropout_p 0.3 it must be a key of jax.random"),
        (3, TypeError, r"rng_state is a int of shape \(\); it must be one key"),
        (np.zeros(2, "int64"), TypeError, r"of shape \(2,\); it must be one key of jax.random"),
        (jax.random.split(KEY), TypeError, r"of shape \(2,\); it must be one key of jax.random"),
    ],
    ids=["none", "a number", "a state", "two keys"],
)
def test_what_is_no_key_is_named_while_tracing(key, error, message):
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda *arrays: attend(arrays, key), *inputs())


def test_a_probability_of_one_is_refused_while_tracing():
    def call(*arrays):
        return attune.flash_attn_func(*arrays, 1.0, rng_state=KEY)

    with pytest.raises(ValueError, match="dropout.p is 1"):
        jax.eval_shape(call, *inputs())


@gpu
def test_on_a_gpu_they_agree_with_the_emulator():
    arrays = inputs()
    out, lse = expected_of(arrays, KEY)
    dout = random_array(out.shape, out.dtype, 7)
    right = attune.flash_attn_backward(
        dout, *arrays, out, lse, causal=True, dropout_p=P, rng_state=state_of(KEY)
    )
    found, of = jax.vjp(lambda *arrays: attend(arrays, KEY), *map(jnp.asarray, arrays))
    for one, other in zip((found, *of(jnp.asarray(dout))), (out, *right), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, atol=5e-3, rtol=5e-3)
