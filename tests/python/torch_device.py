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
    for name in ("flash_attn_with_kvcache", "flash_attn_varlen_func"):
        monkeypatch.setattr(f"attune.torch._ops.{name}", emulated_as(getattr(attune, name)))
    monkeypatch.setattr("attune.torch._ops.flash_attn_backward", emulated_gradients)
    for name in ("store_kvcache", "apply_rotary"):
        monkeypatch.setattr(f"attune.torch._ops.{name}", emulated_in_place(getattr(attune, name)))
    monkeypatch.setattr("attune.torch._expressed_ops.attend", emulated_expressions)
    monkeypatch.setattr(
        "attune.torch._ops.merge_attn_states", emulated_as(attune.merge_attn_states)
    )
    return "cpu"


@pytest.fixture
def backend(torch_device):
    """Of torch.compile: without a GPU, all of it but the code generator."""
    return "inductor" if torch_device == "cuda" else "aot_eager"


def emulated(q, k, v, return_attn_probs=False, **options):
    """attune.flash_attn_func of CPU tensors, by way of NumPy."""
    arrays, named = in_numpy((q, k, v), options)
    result, lse, _ = attune.flash_attn_func(*arrays, return_attn_probs=True, **named)
    out = like(q, result)
    return (out, torch.from_numpy(lse), None) if return_attn_probs else out


def emulated_gradients(*tensors, **options):
    """attune.flash_attn_backward of CPU tensors."""
    arrays, named = in_numpy(tensors, options)
    found = attune.flash_attn_backward(*arrays, **named)
    return tuple(like(x, one) for x, one in zip(tensors[1:4], found))


def emulated_as(function):
    """A function of attune, of CPU tensors by way of NumPy; its results are (out, lse) or (out, lse, None)."""

    def emulated(first, *rest, **options):
        arrays, named = in_numpy(rest, options)
        out, lse, *more = function(as_numpy(first), *arrays, **named)
        return like(first, out), torch.from_numpy(lse), *more

    return emulated


def emulated_expressions(*tensors, params, **options):
    """attune.attention of CPU tensors."""
    arrays, named = in_numpy(tensors, options)
    params = {name: one.numpy() for name, one in params.items()}
    out, lse = attune.attention(*arrays, params=params, **named)
    return like(tensors[0], out), torch.from_numpy(lse)


def emulated_in_place(function):
    """A function of attune that writes its arguments, of CPU tensors, whose memory NumPy shares."""

    def emulated(*tensors, **options):
        arrays, named = in_numpy(tensors, options)
        function(*arrays, **named)

    return emulated


def in_numpy(values, options):
    def one(value):
        return as_numpy(value) if isinstance(value, torch.Tensor) else value

    return [one(value) for value in values], {name: one(value) for name, value in options.items()}


def as_numpy(x):
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x.numpy()
    dtype = "float16"
    if x.dtype == torch.bfloat16:
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return x.detach().view(torch.int16).numpy().view(dtype)


def like(q, result):
    """The result as a tensor in the layout of q."""
    out = torch.empty_like(q)
    out.copy_(torch.from_numpy(result.view(np.int16)).view(q.dtype))
    return out
