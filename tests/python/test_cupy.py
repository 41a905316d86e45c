"""CuPy arrays. Skipped, by name, where CuPy or a GPU is missing."""

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
