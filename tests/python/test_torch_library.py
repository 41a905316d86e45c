"""attune.torch: what torch.compile, torch.export and autograd see. Skipped, by name, without PyTorch.

Without a GPU the kernels run in the emulator, behind the same operators.
"""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_attends

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

pytest_plugins = "torch_device"
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")

FUNCTIONS = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func"]
OPERATORS = ["flash_attn", "flash_attn_lse"]


def inputs(device, dtype=torch.float16, seqlen_q=40, seqlen_k=50, requires_grad=False):
    torch.manual_seed(0)
    q = torch.randn(2, seqlen_q, 4, 64).to(device, dtype)
    k = torch.randn(2, seqlen_k, 2, 64).to(device, dtype)
    v = torch.randn(2, seqlen_k, 2, 64).to(device, dtype)
    return tuple(x.requires_grad_(requires_grad) for x in (q, k, v))


def in_other_layouts(q, k, v):
    """The same tensors: as they are, heads before sequence, in packed memory, broadcast heads."""
    yield q, k, v
    yield tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    packed = torch.cat([x[:, : q.shape[1]] for x in (q, k, v)], 2)
    yield packed.split([4, 2, 2], 2)
    yield q, k[:, :, :1].expand_as(k), v[:, :, :1].expand_as(v)


def numpy(x):
    return x.detach().cpu().numpy()


def test_attune_alone_imports_no_pytorch():
    code = "import sys, attune; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_float64(torch_device, causal):
    q, k, v = inputs(torch_device)
    out, lse, dmask = library.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    assert_attends(numpy(out), numpy(q), numpy(k), numpy(v), numpy(lse), causal=causal)
    assert dmask is None
    assert torch.equal(library.flash_attn_func(q, k, v, causal=causal), out)
    scaled = library.flash_attn_func(q, k, v, softmax_scale=0.3)
    assert_attends(numpy(scaled), numpy(q), numpy(k), numpy(v), scale=0.3)
    options = {"window_size": (9, 5), "softcap": 2.0}
    out, lse, _ = library.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    expected = (numpy(q), numpy(k), numpy(v), numpy(lse))
    assert_attends(numpy(out), *expected, window=(9, 5), softcap=2.0)
    assert torch.equal(library.flash_attn_func(q, k, v, **options), out)


@pytest.mark.parametrize("window", [torch.tensor([9, 5]), (np.int64(9), torch.tensor(5)), [9, 5]])
def test_windows_of_any_integers(torch_device, window):
    q, k, v = inputs(torch_device)
    expected = library.flash_attn_func(q, k, v, window_size=(9, 5))
    assert torch.equal(library.flash_attn_func(q, k, v, window_size=window), expected)
    with pytest.raises(TypeError, match="it must be \\(left, right\\), two integers"):
        library.flash_attn_func(q, k, v, window_size=(*window, 1))


def test_packed_ragged_batches(torch_device):
    q, k, v = (x[0] for x in inputs(torch_device, seqlen_q=50))
    starts = torch.tensor([0, 20, 50], dtype=torch.int32, device=torch_device)
    where = (starts, starts, 30, 30)
    assert torch.equal(
        library.flash_attn_varlen_kvpacked_func(q, torch.stack([k, v], 1), *where, causal=True),
        library.flash_attn_varlen_func(q, k, v, *where, causal=True),
    )
    assert torch.equal(
        library.flash_attn_varlen_qkvpacked_func(torch.stack([k, k, v], 1), starts, 30),
        library.flash_attn_varlen_func(k, k, v, *where),
    )
    message = "kv has shape (50, 2, 64); it must be (total_k, 2, heads, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        library.flash_attn_varlen_kvpacked_func(q, k, *where)


def test_packed(torch_device):
    q, k, v = inputs(torch_device, seqlen_q=50)
    kv = torch.stack([k, v], 2)
    assert torch.equal(
        library.flash_attn_kvpacked_func(q, kv, causal=True),
        library.flash_attn_func(q, k, v, causal=True),
    )
    qkv = torch.stack([q[:, :, :2], k, v], 2)
    assert torch.equal(
        library.flash_attn_qkvpacked_func(qkv, softmax_scale=0.2),
        library.flash_attn_func(q[:, :, :2], k, v, softmax_scale=0.2),
    )


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operators_keep_their_schema_and_their_fake_agrees(torch_device, dtype, name):
    operator = getattr(torch.ops.attune, name).default
    for arguments in in_other_layouts(*inputs(torch_device, dtype)):
        torch.library.opcheck(operator, arguments, {"softmax_scale": 0.1, "causal": True})


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_tensors_of_a_gpu_that_is_not_here(name):
    operator = getattr(torch.ops.attune, name)
    with FakeTensorMode():
        for q, k, v in in_other_layouts(*inputs("cuda")):
            results = operator(q, k, v)
            out = results if name == "flash_attn" else results[0]
            assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
            assert out.stride() == torch.empty_like(q).stride()
            if name == "flash_attn_lse":
                assert results[1].shape == (2, 4, q.shape[1])
                assert results[1].is_contiguous()
                assert (results[1].dtype, results[1].device) == (torch.float32, q.device)


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_results_have_the_head_dim_of_the_values(name):
    operator = getattr(torch.ops.attune, name)
    with FakeTensorMode():
        q, k, v = inputs("cuda")
        results = operator(q, k, v[..., :32])
        out = results if name == "flash_attn" else results[0]
        assert (out.shape, out.dtype, out.device) == ((2, 40, 4, 32), q.dtype, q.device)
        assert out.is_contiguous()


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_results_of_a_padded_head_dim_are_views_of_its_width(name):
    operator = getattr(torch.ops.attune, name)
    with FakeTensorMode():
        results = operator(*(x[..., :59] for x in inputs("cuda")))
        out = results if name == "flash_attn" else results[0]
        assert out.shape == (2, 40, 4, 59)
        assert out.stride() == (40 * 4 * 64, 4 * 64, 64, 1)


@gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_take_a_head_dim_of_any_size(name):
    q, k, v = (x[..., :59] for x in inputs("cuda"))
    torch.library.opcheck(getattr(torch.ops.attune, name).default, (q, k, v), {"causal": True})
    out = library.flash_attn_func(q, k, v, causal=True)
    assert_attends(numpy(out), numpy(q), numpy(k), numpy(v), causal=True)


@gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_take_values_of_another_head_dim(name):
    if not attune.explain(head_dim=192, head_dim_v=128).served:
        pytest.skip("this GPU has no kernel for it")
    q, k, v = (
        torch.randn(2, 70, 4, d, device="cuda", dtype=torch.float16) for d in (192, 192, 128)
    )
    torch.library.opcheck(getattr(torch.ops.attune, name).default, (q, k, v), {"causal": True})
    out = library.flash_attn_func(q, k, v, causal=True)
    assert_attends(numpy(out), numpy(q), numpy(k), numpy(v), causal=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiles_into_one_graph(torch_device, backend, name):
    q, k, v = inputs(torch_device, seqlen_q=50)
    arguments = {
        "flash_attn_func": (q, k, v),
        "flash_attn_kvpacked_func": (q, torch.stack([k, v], 2)),
        "flash_attn_qkvpacked_func": (torch.stack([k, k, v], 2),),
    }[name]

    def attend(*tensors):
        out, lse, _ = getattr(library, name)(*tensors, causal=True, return_attn_probs=True)
        return out * 2, lse + 1

    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    for result, expected in zip(compiled(*arguments), attend(*arguments)):
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()


def test_one_compilation_serves_every_shape(torch_device, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(
        lambda q, k, v: library.flash_attn_func(q * 2, k, v, causal=True),
        fullgraph=True,
        dynamic=True,
        backend=counter,
    )
    frames = set()
    for seqlen_q, seqlen_k in ((40, 50), (33, 70), (5, 90)):
        q, k, v = inputs(torch_device, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
        expected = library.flash_attn_func(q * 2, k, v, causal=True)
        assert torch.equal(compiled(q, k, v), expected)
        frames.add(counter.frame_count)
    assert len(frames) == 1  # PyTorch may begin the first compilation again, once it knows which numbers are constants


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        return library.flash_attn_func(q, k, v, causal=True)


@pytest.mark.parametrize("strict", [False, True])
def test_exports_with_dynamic_shapes(torch_device, strict):
    arguments = inputs(torch_device)
    batch, seqlen_q, seqlen_k = (torch.export.Dim(name) for name in ("batch", "m", "n"))
    exported = torch.export.export(
        Attend(),
        arguments,
        dynamic_shapes=({0: batch, 1: seqlen_q}, *({0: batch, 1: seqlen_k} for _ in range(2))),
        strict=strict,
    )
    calls = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.attune.flash_attn.default]
    for q, k, v in (arguments, inputs(torch_device, seqlen_q=7, seqlen_k=60)):
        assert torch.equal(exported.module()(q, k, v), Attend()(q, k, v))


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_are_refused_by_the_fake(name):
    for number, letter in enumerate("qkv"):
        tensors = [torch.empty(1, 8, 2, 64, device="meta", dtype=torch.float16) for _ in "qkv"]
        tensors[number].requires_grad_()
        with pytest.raises(NotImplementedError, match=f"{letter} requires a gradient"):
            getattr(torch.ops.attune, name)(*tensors)


def test_gradients_are_refused_in_one_graph(torch_device, backend):
    """Dynamo's own error, with ours in its text."""
    q, k, v = inputs(torch_device, requires_grad=True)
    function = torch.ops.attune.flash_attn.default
    compiled = torch.compile(lambda q, k, v: function(q * 2, k, v), fullgraph=True, backend=backend)
    with pytest.raises(RuntimeError, match="q requires a gradient"):
        compiled(q, k, v)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_that_are_not_wanted(torch_device, backend, mode):
    q, k, v = inputs(torch_device, requires_grad=True)
    expected = library.flash_attn_func(q.detach(), k.detach(), v.detach(), causal=True)

    def attend(q, k, v):
        with torch.no_grad():
            return library.flash_attn_func(q, k, v, causal=True)

    with mode():
        assert torch.equal(library.flash_attn_func(q, k, v, causal=True), expected)
        compiled = torch.compile(Attend(), fullgraph=True, backend=backend)
        assert torch.equal(compiled(q, k, v), expected)
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    result = compiled(q, k, v)
    assert torch.equal(result, expected)
    assert not result.requires_grad


def test_transforms_are_refused(torch_device):
    q, k, v = inputs(torch_device)

    def total(q):
        return library.flash_attn_func(q, k, v).sum()

    for transform in (
        lambda: torch.vmap(total)(q[None]),
        lambda: torch.func.grad(total)(q),
        lambda: torch.func.jvp(total, (q,), (q,)),
    ):
        with pytest.raises(NotImplementedError, match="does not support the transforms of"):
            transform()


def test_wrong_tensors():
    q = torch.zeros(1, 8, 2, 64)
    with pytest.raises(TypeError, match="q has dtype torch.float32; it must be float16 or"):
        library.flash_attn_func(q, q, q)
    q = q.half()
    with pytest.raises(ValueError, match="q is on the device cpu; it must be on a CUDA device"):
        library.flash_attn_func(q, q, q)
    message = "kv has shape (1, 8, 2, 64); it must be (batch, seqlen, 2, heads, head_dim)"
    with pytest.raises(ValueError, match=re.escape(message)):
        library.flash_attn_kvpacked_func(q, q)
    with pytest.raises(TypeError, match="k is a NoneType; it must be a torch.Tensor"):
        library.flash_attn_func(q, None, q)
    with pytest.raises(TypeError, match="qkv is a ndarray; it must be a torch.Tensor"):
        library.flash_attn_qkvpacked_func(np.zeros((1, 8, 3, 2, 64), "float16"))


@gpu
def test_autocast_casts_nothing():
    q, k, v = inputs("cuda", torch.float32)
    refusal = pytest.raises(TypeError, match="q has dtype torch.float32; it must be float16 or")
    with torch.autocast("cuda", torch.bfloat16), refusal:
        library.flash_attn_func(q, k, v)


@gpu
def test_runs_on_the_current_stream():
    q, k, v = inputs("cuda")
    expected = library.flash_attn_func(q * 2, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        late = q * 2
        out = library.flash_attn_func(late, k, v)
    stream.synchronize()
    assert torch.equal(out, expected)


@gpu
def test_can_be_captured_in_a_graph():
    q, k, v = inputs("cuda")
    library.flash_attn_func(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = library.flash_attn_func(q, k, v)
    q.mul_(0.5)
    graph.replay()
    assert torch.equal(out, library.flash_attn_func(q, k, v))


@gpu
def test_compiles_into_cuda_graphs():
    compiled = torch.compile(
        lambda q, k, v: library.flash_attn_func(q * 2, k, v, causal=True) + 1,
        fullgraph=True,
        mode="reduce-overhead",
    )
    for scale in (1, 0.5, 0.25):
        q, k, v = inputs("cuda")
        q = q * scale
        expected = library.flash_attn_func(q * 2, k, v, causal=True) + 1
        assert torch.equal(compiled(q, k, v), expected)


@gpu
def test_deterministic_algorithms():
    q, k, v = inputs("cuda")
    expected = library.flash_attn_func(q, k, v)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(library.flash_attn_func(q, k, v), expected)
    finally:
        torch.use_deterministic_algorithms(False)
