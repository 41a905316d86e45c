"""A pytest plugin for tests of attune.torch: where tensors live, on a GPU or without one."""

import numpy as np
import pytest
import torch

import attune
from attune.torch import _ops

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=gpu)])
def torch_device(request, monkeypatch):
    """The device of the tensors: "cpu", whose operators run in the emulator, or "cuda"."""
    torch.compiler.reset()
    if request.param == "cuda":
        return "cuda"
    for name in _ops.functions:
        monkeypatch.setitem(_ops.functions, name, emulated(getattr(attune, name)))
    return "cpu"


@pytest.fixture
def backend(torch_device):
    """Of torch.compile: without a GPU, all of it but the code generator."""
    return "inductor" if torch_device == "cuda" else "aot_eager"


def emulated(function):
    """A function of attune, of CPU tensors by way of NumPy, which shares the memory of those that are written."""

    def run(*values, **options):
        results = function(
            *map(in_numpy, values), **{one: in_numpy(value) for one, value in options.items()}
        )
        first, *_ = (*values, *options.values())
        if not isinstance(results, tuple):
            return in_torch(first, results)
        of_each = function is attune.flash_attn_backward
        likes = [options[one] for one in "qkv"] if of_each else [first] * 3
        return tuple(in_torch(like, one) for like, one in zip(likes, results))

    return run


def in_numpy(value):
    if isinstance(value, dict):
        return {name: in_numpy(one) for name, one in value.items()}
    return as_numpy(value) if isinstance(value, torch.Tensor) else value


def as_numpy(x):
    x = x.detach()
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x.numpy()
    dtype = "float16"
    if x.dtype == torch.bfloat16:
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return x.view(torch.int16).numpy().view(dtype)


def in_torch(original, result):
    """A result as a tensor; of the original's dtype it has its layout."""
    if result is None or result.dtype == np.float32:
        return result if result is None else torch.from_numpy(result)
    out = torch.empty_like(original)
    out.copy_(torch.from_numpy(result.view(np.int16)).view(original.dtype))
    return out
