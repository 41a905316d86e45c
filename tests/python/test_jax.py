"""JAX arrays. Skipped, by name, where JAX or a GPU is missing; what needs no values is tested without one."""

import numpy as np
import pytest
from conftest import assert_attends, random_array

import attune

jax = pytest.importorskip("jax")
pytest.importorskip("ml_dtypes")
jnp = jax.numpy
gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")

SHAPES = ((2, 100, 4, 64), (2, 130, 2, 64), (2, 130, 2, 64))


def inputs(dtype):
    return [random_array(shape, dtype, seed) for seed, shape in enumerate(SHAPES)]


def cpu_arrays(*shapes, dtype="bfloat16"):
    with jax.default_device(jax.devices("cpu")[0]):
        return [jnp.zeros(shape, dtype) for shape in shapes]


def test_cpu_arrays_are_refused():
    with pytest.raises(ValueError, match=r"q is on the device .*; it must be on a CUDA device"):
        attune.flash_attn_func(*cpu_arrays(*SHAPES))


def test_other_dtypes_are_refused():
    q, k, v = cpu_arrays(*SHAPES, dtype="float32")
    with pytest.raises(TypeError, match="q has dtype float32; it must be float16 or bfloat16"):
        attune.flash_attn_func(q, k, v)


def test_mixed_frameworks_are_refused():
    q = inputs("float16")[0]
    with pytest.raises(TypeError, match="k is a .*; it must be a numpy.ndarray, as q is"):
        attune.flash_attn_func(q, *cpu_arrays(*SHAPES[1:], dtype="float16"))


def test_ragged_batches_are_refused():
    q, k, v = (x[0] for x in cpu_arrays(*SHAPES))
    with pytest.raises(NotImplementedError, match="q is a jax.Array; attention over a ragged bat"):
        attune.flash_attn_varlen_func(q, k, v, None, None, 1, 1)


def test_caches_are_refused():
    q, k, v = cpu_arrays(*SHAPES)
    message = "q is a jax.Array; attention to a cache serves PyTorch CUDA tensors, CuPy and NumPy"
    with pytest.raises(NotImplementedError, match=message):
        jax.eval_shape(attune.flash_attn_with_kvcache, q[:, :1], k, v)


def test_mistakes_are_named_while_tracing():
    def traced(*shapes):
        return jax.eval_shape(attune.flash_attn_func, *cpu_arrays(*shapes))

    with pytest.raises(
        ValueError, match=r"v has shape \(2, 9, 2, 64\); with k of \(2, 130, 2, 64\) it must be \(2"
    ):
        traced(*SHAPES[:2], (2, 9, 2, 64))
    with pytest.raises(ValueError, match="head_dim is 264; it must be from 1 to 256"):
        traced(*((*shape[:3], 264) for shape in SHAPES))


def test_a_traced_scale_is_refused():
    (q,) = cpu_arrays(SHAPES[0])

    def scaled(q, scale):
        return attune.flash_attn_func(q, q, q, softmax_scale=scale)

    with pytest.raises(TypeError, match="softmax_scale is a .*Tracer; it must be a number"):
        jax.eval_shape(scaled, q, 0.1)


def test_results_have_their_shapes_while_tracing():
    def both(*arrays):
        return attune.flash_attn_func(*arrays, return_attn_probs=True)

    arrays = cpu_arrays(*SHAPES)
    out, lse, dmask = jax.eval_shape(both, *arrays)
    assert (out.shape, out.dtype) == (SHAPES[0], jnp.bfloat16)
    assert (lse.shape, lse.dtype) == ((2, 4, 100), jnp.float32)
    assert dmask is None
    out, _, _ = jax.eval_shape(jax.vmap(both), *(array[None] for array in arrays))
    assert out.shape == (1, *SHAPES[0])
    out, _, _ = jax.eval_shape(both, *arrays[:2], arrays[2][..., :32])
    assert out.shape == (*SHAPES[0][:3], 32)


def test_gradients_have_the_shapes_of_their_arrays_while_tracing():
    def loss(*arrays):
        out, lse, _ = attune.flash_attn_func(*arrays, return_attn_probs=True)
        return out.astype("float32").sum() + lse.sum()

    arrays = cpu_arrays(*SHAPES)
    for found in (
        jax.eval_shape(jax.grad(loss, (0, 1, 2)), *arrays),
        jax.eval_shape(jax.vmap(jax.grad(loss, (0, 1, 2))), *(x[:, None] for x in arrays)),
    ):
        assert [x.size for x in found] == [x.size for x in arrays]
        assert all(x.dtype == jnp.bfloat16 for x in found)


def test_second_derivatives_are_refused_and_not_zero():
    def loss(*arrays):
        return attune.flash_attn_func(*arrays).astype("float32").sum()

    def slope(*arrays):
        return jax.grad(loss)(*arrays).astype("float32").sum()

    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        jax.eval_shape(jax.grad(slope), *cpu_arrays(*SHAPES))


def formula(q, k, v, causal=False):
    """(out, lse), of any dtype, differentiable."""
    k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
    position = jnp.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    scores = jnp.where(causal & (jnp.arange(k.shape[1]) > position), -jnp.inf, scores)
    out = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v)
    return out, jax.nn.logsumexp(scores, 3)


def gradients(function, arrays, with_lse=True):
    """Of a loss of both results, in NumPy's float64."""
    shape = (*arrays[0].shape[:3], arrays[0].shape[3])
    weights = random_array(shape, arrays[0].dtype, 7)
    rows = random_array((shape[0], shape[2], shape[1]), np.float32, 8)

    def loss(*arrays):
        out, lse = function(*arrays)[:2]
        # In float32, so that both sides hand over the same gradients.
        loss = (out * weights.astype(out.dtype)).astype("float32").sum()
        return loss + (lse * rows).sum() if with_lse else loss

    found = jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays)
    return [np.asarray(x, np.float64) for x in found]


def assert_gradients(arrays, ours, formula, with_lse=True):
    """At most three times the error of the same formula in the storage type."""
    exact = gradients(formula, [jnp.asarray(x, "float32") for x in arrays], with_lse)
    naive = gradients(formula, [jnp.asarray(x) for x in arrays], with_lse)
    found = gradients(ours, [jnp.asarray(x) for x in arrays], with_lse)
    for one, right, near in zip(found, exact, naive):
        assert np.abs(one - right).max() <= 3 * np.abs(near - right).max()


def with_lse(**options):
    def attend(*arrays):
        return attune.flash_attn_func(*arrays, return_attn_probs=True, **options)

    return attend


@pytest.mark.parametrize("lse", [True, False], ids=["both", "out"])
def test_gradients_where_the_emulator_computes(emulated, lse):
    arrays = [x[:1, :40] for x in inputs("float16")]
    assert_gradients(
        arrays, with_lse(causal=True), lambda *x: formula(*x, causal=True), with_lse=lse
    )


@gpu
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_agree_with_those_of_the_formula(dtype, causal):
    assert_gradients(inputs(dtype), with_lse(causal=causal), lambda *x: formula(*x, causal=causal))


@gpu
def test_gradients_of_packed_arrays_and_of_more_batch():
    qkv = random_array((2, 50, 3, 4, 64), "float16", 1)

    def ours(qkv):
        return attune.flash_attn_qkvpacked_func(qkv, return_attn_probs=True)[:2]

    def loss(function):
        return jax.jit(jax.grad(lambda x: function(x)[0].astype("float32").sum()))

    found = loss(ours)(jnp.asarray(qkv))
    split = [jnp.asarray(qkv[:, :, i]) for i in range(3)]
    apart = jax.grad(
        lambda *x: attune.flash_attn_func(*x).astype("float32").sum(), argnums=(0, 1, 2)
    )(*split)
    assert (np.asarray(found) == np.stack(apart, 2)).all()
    each = jax.vmap(loss(ours))(jnp.asarray(qkv)[:, None])
    assert (np.asarray(each)[:, 0] == np.asarray(found)).all()


@gpu
@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_float64(dtype, causal):
    arrays = inputs(dtype)
    out, lse, _ = attune.flash_attn_func(
        *map(jnp.asarray, arrays), causal=causal, return_attn_probs=True
    )
    assert isinstance(out, jax.Array)
    assert_attends(np.asarray(out), *arrays, np.asarray(lse), causal=causal)


@gpu
@pytest.mark.parametrize("seqlen", [2000, 4100])
def test_sizes_whose_last_tiles_are_shared(seqlen):
    shape = (1, seqlen, 20, 128)  # no multiple of any number of multiprocessors
    arrays = [random_array(shape, "bfloat16", seed) for seed in range(3)]
    out = np.asarray(attune.flash_attn_func(*map(jnp.asarray, arrays)))
    for rows in (slice(0, 64), slice(seqlen - 64, seqlen)):
        assert_attends(out[:, rows], arrays[0][:, rows], *arrays[1:])


@gpu
def test_windows_and_soft_caps():
    arrays = inputs("float16")
    options = {"window_size": (40, 9), "softcap": 2.0}
    out = jax.jit(lambda *x: attune.flash_attn_func(*x, **options))(*map(jnp.asarray, arrays))
    assert_attends(np.asarray(out), *arrays, window=(40, 9), softcap=2.0)


@gpu
def test_values_of_another_head_dim(dtype):
    if not attune.explain(head_dim=192, head_dim_v=128).served:
        pytest.skip("this GPU has no kernel for it")
    arrays = [random_array((2, 150, 2, d), dtype, seed) for seed, d in enumerate((192, 192, 128))]
    out = attune.flash_attn_func(*map(jnp.asarray, arrays), causal=True)
    assert_attends(np.asarray(out), *arrays, causal=True)


@gpu
def test_takes_its_place_among_operations_that_still_run():
    q, k, v = inputs("float16")
    on_gpu = [jnp.asarray(array) for array in (q, k, v)]
    for _ in range(20):
        late = on_gpu[0] * 2  # queued, not computed
        out = attune.flash_attn_func(late, *on_gpu[1:]) * 0.5
    expected = attune.flash_attn_func(late.block_until_ready(), *on_gpu[1:]).block_until_ready()
    assert (np.asarray(out) == np.asarray(expected) / 2).all()


@gpu
def test_compiled_it_has_the_same_bits():
    arrays = [jnp.asarray(array) for array in inputs("bfloat16")]
    compiled = jax.jit(lambda *arrays: attune.flash_attn_func(*arrays, causal=True))
    expected = attune.flash_attn_func(*arrays, causal=True)
    assert np.asarray(compiled(*arrays)).tobytes() == np.asarray(expected).tobytes()


@gpu
def test_vmap_is_more_batch():
    q, k, v = inputs("float16")
    more = jax.vmap(attune.flash_attn_func, in_axes=(0, 0, None))
    out = more(*(jnp.asarray(np.stack([x, 2 * x])) for x in (q, k)), jnp.asarray(v))
    assert_attends(np.asarray(out[0]), q, k, v)
    assert_attends(np.asarray(out[1]), 2 * q, 2 * k, v)


@gpu
def test_transposed_arrays():
    q, k, v = inputs("float16")
    heads_first = [jnp.asarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    out = jax.jit(lambda *x: attune.flash_attn_func(*(y.swapaxes(1, 2) for y in x)))(*heads_first)
    assert_attends(np.asarray(out), q, k, v)


@gpu
def test_packed():
    qkv = random_array((2, 50, 3, 4, 64), "float16", 1)
    q, k, v = (qkv[:, :, part] for part in range(3))
    assert_attends(np.asarray(attune.flash_attn_qkvpacked_func(jnp.asarray(qkv))), q, k, v)
    out = attune.flash_attn_kvpacked_func(jnp.asarray(q), jnp.asarray(qkv[:, :, 1:]))
    assert_attends(np.asarray(out), q, k, v)


@gpu
@pytest.mark.skipif(len(jax.devices()) < 2, reason="JAX finds one GPU")
def test_a_device_that_is_not_the_first():
    arrays = inputs("float16")
    out = attune.flash_attn_func(*(jax.device_put(x, jax.devices()[1]) for x in arrays))
    assert out.devices() == {jax.devices()[1]}
    assert_attends(np.asarray(out), *arrays)


def on_two_devices(arrays):
    """The arrays, half of the batch on each of two devices, and their mesh."""
    mesh = jax.make_mesh((2,), ("batch",), devices=jax.devices()[:2])
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    return [jax.device_put(array, halves) for array in arrays], mesh


@gpu
@pytest.mark.skipif(len(jax.devices()) < 2, reason="JAX finds one GPU")
def test_arrays_on_several_devices_are_refused():
    arrays, _ = on_two_devices(inputs("float16"))
    with pytest.raises(NotImplementedError, match="q lies on 2 devices"):
        attune.flash_attn_func(*arrays)


@gpu
@pytest.mark.skipif(len(jax.devices()) < 2, reason="JAX finds one GPU")
def test_each_device_has_its_own_part_under_shard_map():
    arrays, mesh = on_two_devices(inputs("float16"))
    batch = jax.sharding.PartitionSpec("batch")
    each = jax.shard_map(attune.flash_attn_func, mesh=mesh, in_specs=batch, out_specs=batch)
    out = jax.jit(each)(*arrays)
    assert len(out.devices()) == 2
    assert_attends(np.asarray(out), *inputs("float16"))
