"""CuPy arrays. Skipped, by name, where CuPy or a GPU is missing."""

import threading

import cached
import pytest
from conftest import assert_attends, random_array

import attune

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.skipif(not cupy.is_available(), reason="CuPy finds no GPU")


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_float64(causal):
    shapes = ((2, 100, 4, 64), (2, 130, 2, 64), (2, 130, 2, 64))
    arrays = [random_array(shape, "float16", seed) for seed, shape in enumerate(shapes)]
    with cupy.cuda.Stream(non_blocking=True):
        copies = [cupy.asarray(array) for array in arrays]
        out, lse, _ = attune.flash_attn_func(*copies, causal=causal, return_attn_probs=True)
        assert isinstance(out, cupy.ndarray)
        assert_attends(out.get(), *arrays, lse.get(), causal=causal)


def on_gpu(device=0):
    arrays = [random_array((2, 50, 4, 64), "float16", seed) for seed in range(3)]
    with cupy.cuda.Device(device):
        return arrays, [cupy.asarray(array) for array in arrays]


def test_packed():
    array = random_array((2, 50, 3, 4, 64), "float16", 1)
    out = attune.flash_attn_qkvpacked_func(cupy.asarray(array))
    assert_attends(out.get(), *(array[:, :, part] for part in range(3)))


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("seqlen_q", [2, 40])
def test_a_cache(page_size, seqlen_q):
    q, k, v = cached.problem(seqlen_q=seqlen_q)
    cache, options = (k, v), {"cache_seqlens": cached.int32(cached.LENGTHS)}
    if page_size is not None:
        *cache, options["block_table"] = cached.paged(k, v, page_size)
    with cupy.cuda.Stream(non_blocking=True):
        out, lse = attune.flash_attn_with_kvcache(
            *(cupy.asarray(array) for array in (q, *cache)),
            **{name: cupy.asarray(array) for name, array in options.items()},
            causal=True,
            return_softmax_lse=True,
        )
        assert isinstance(out, cupy.ndarray)
        result = out.get(), lse.get()
    cached.assert_attends(result, q, k, v, cached.LENGTHS, causal=True)


def test_a_thread_that_has_not_used_cuda():
    arrays, copies = on_gpu()
    results = []
    thread = threading.Thread(target=lambda: results.append(attune.flash_attn_func(*copies)))
    thread.start()
    thread.join()
    assert_attends(results[0].get(), *arrays)


@pytest.mark.skipif(
    not cupy.is_available() or cupy.cuda.runtime.getDeviceCount() < 2, reason="CuPy finds one GPU"
)
def test_a_device_that_is_not_the_current_one():
    arrays, copies = on_gpu(device=1)
    out, lse, _ = attune.flash_attn_func(*copies, return_attn_probs=True)
    assert out.device.id == lse.device.id == 1
    assert cupy.cuda.runtime.getDevice() == 0
    assert_attends(out.get(), *arrays, lse.get())
