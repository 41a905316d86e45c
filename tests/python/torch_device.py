"""A pytest plugin for tests of attune.torch: where tensors live, on a GPU or without one."""

import numpy as np
import pytest
import torch

import attune

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=gpu)])
def torch_device(request, monkeypatch):
    """The device of the tensors: "cpu", whose operators run in the emulator, or "cuda"."""
    torch.compiler.reset()
    if request.param == "cuda":
        return "cuda"
    monkeypatch.setattr("attune.torch._ops.flash_attn_func", emulated)
    return "cpu"


@pytest.fixture
def backend(torch_device):
    """Of torch.compile: without a GPU, all of it but the code generator."""
    return "inductor" if torch_device == "cuda" else "aot_eager"


def emulated(q, k, v, return_attn_probs=False, **options):
    """attune.flash_attn_func of CPU tensors, by way of NumPy."""
    dtype = "float16"
    if q.dtype == torch.bfloat16:
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    arrays = [x.detach().view(torch.int16).numpy().view(dtype) for x in (q, k, v)]
    result, lse, _ = attune.flash_attn_func(*arrays, return_attn_probs=True, **options)
    out = torch.empty_like(q)
    out.copy_(torch.from_numpy(result.view(np.int16)).view(q.dtype))
    return (out, torch.from_numpy(lse), None) if return_attn_probs else out
