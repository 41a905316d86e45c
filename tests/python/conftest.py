"""What the tests share: random inputs and the float64 reference that results are held to."""

import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    """Kernels are made anew, and none are left in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(params=["float16", "bfloat16"])
def dtype(request):
    """Each dtype that is served, as NumPy has it."""
    if request.param == "float16":
        return np.dtype("float16")
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


def random_array(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def reference(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0, storage=np.float64):
    """Output and log-sum-exp; every intermediate result is rounded to `storage`."""
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def rounded(x):
        return x.astype(storage).astype(np.float64)

    scores = rounded(scale * (q @ k.swapaxes(2, 3)))
    if softcap:
        scores = rounded(softcap * np.tanh(scores / softcap))
    left, right = window[0], 0 if causal else window[1]
    position = np.arange(scores.shape[2])[:, None] + scores.shape[3] - scores.shape[2]
    key = np.arange(scores.shape[3])
    hidden = (left >= 0) & (key < position - left) | (right >= 0) & (key > position + right)
    scores = np.where(hidden, -np.inf, scores)
    top = scores.max(axis=3, keepdims=True, initial=-np.inf)
    weights = rounded(np.exp(scores - np.where(np.isfinite(top), top, 0)))
    total = weights.sum(axis=3, keepdims=True)
    out = rounded(rounded(weights / np.where(total > 0, total, 1)) @ v)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return out.transpose(0, 2, 1, 3), lse


def assert_attends(out, q, k, v, lse=None, **options):
    """At most twice the error of the same formula in the storage type; LSE is float32."""
    exact, exact_lse = reference(q, k, v, **options)
    naive, _ = reference(q, k, v, storage=q.dtype, **options)
    assert out.shape == (*q.shape[:3], v.shape[3])
    assert out.dtype == q.dtype
    assert np.abs(out.astype(np.float64) - exact).max() <= 2 * np.abs(naive - exact).max()
    if lse is not None:
        assert lse.dtype == np.float32
        np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)


@pytest.fixture
def emulated(monkeypatch):
    """XLA calls the emulator, by way of NumPy, in place of a kernel."""
    jax = pytest.importorskip("jax")

    import attune
    from attune import _jax

    def ffi_call(name, results, vmap_method):
        def call(*operands, causal, softmax_scale, softcap, score, mask, params, sink, **more):
            names = params.split()
            has_sink = bool(sink)
            options = {
                "softmax_scale": float(softmax_scale),
                "causal": bool(causal),
                "softcap": float(softcap),
                "window_size": (int(more["window_left"]), int(more["window_right"])),
                "score": score or None,
                "mask": mask or None,
            }

            def run(*arrays):
                arrays = [np.asarray(x) for x in arrays]
                params = [arrays.pop() for _ in names][::-1]
                named = options | {"params": dict(zip(names, params))}
                dropout_p = float(more["dropout_p"])
                dropout = {}
                if dropout_p:
                    state = arrays.pop()
                    assert (state.dtype, state.shape) == (np.int32, (4,))
                    dropout = {"dropout_p": dropout_p, "rng_state": state.view(np.int64)}
                if name == "attune_prefill":
                    q, k, v, *rest = arrays
                    assert len(rest) == has_sink
                    named["learnable_sink"] = rest[0] if rest else None
                    if dropout:
                        assert not (score or mask)
                        own = {
                            x: y for x, y in named.items() if x not in ("score", "mask", "params")
                        }
                        found = attune.flash_attn_func(
                            q, k, v, **own, **dropout, return_attn_probs=True
                        )
                        return list(found[: len(results)])
                    found = attune.attention(q, k, v, **named, return_lse=True)
                    return list(found[: len(results)])
                q, k, v, out, lse, dout, *dlse = arrays
                named["dsoftmax_lse"] = dlse[0] if dlse else None
                return list(attune.flash_attn_backward(dout, q, k, v, out, lse, **named, **dropout))

            return jax.pure_callback(run, results, *operands, vmap_method=vmap_method)

        return call

    monkeypatch.setattr(jax.ffi, "ffi_call", ffi_call)
    _jax._compiled.clear_cache()
    yield
    _jax._compiled.clear_cache()
