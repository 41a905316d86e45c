"""PyTorch tensors. Skipped, by name, where PyTorch or a GPU is missing."""

import pathlib
import subprocess
import sys
import threading

import pytest

import attune

torch = pytest.importorskip("torch")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


def inputs(dtype=torch.float16, heads_kv=2, **options):
    torch.manual_seed(0)
    options = {"dtype": dtype, "device": "cuda"} | options
    q = torch.randn(2, 300, 4, 64, **options)
    k = torch.randn(2, 333, heads_kv, 64, **options)
    return q, k, torch.randn_like(k)


def expected(q, k, v, causal=False):
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[3] ** -0.5
    if causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, float("-inf"))
    return (scores.softmax(3) @ v).transpose(1, 2), scores.logsumexp(3)


def assert_close(out, q, k, v, causal=False):
    assert out.dtype == q.dtype
    assert out.device == q.device
    tolerance = 2e-3 if q.dtype == torch.float16 else 1.6e-2
    torch.testing.assert_close(
        out.float(), expected(q, k, v, causal)[0], rtol=tolerance, atol=tolerance
    )


def test_cpu_tensors_are_refused():
    q = torch.zeros(1, 8, 2, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match="q is on the device cpu; it must be on a CUDA device"):
        attune.flash_attn_func(q, q, q)


def test_float32_is_refused():
    q = torch.zeros(1, 8, 2, 64)
    with pytest.raises(TypeError, match="q has dtype torch.float32; it must be float16 or"):
        attune.flash_attn_func(q, q, q)


def test_dtypes_and_layouts_that_dlpack_has_not_are_named():
    q = torch.zeros(1, 8, 2, 64, dtype=torch.float16)
    quantized = torch.quantize_per_tensor(q.float(), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match="q has dtype torch.qint8; it must be float16 or bfloat16"):
        attune.flash_attn_func(quantized, q, q)
    with pytest.raises(ValueError, match="q is on the device meta; it must be on a CUDA device"):
        attune.flash_attn_func(q.to("meta"), q, q)


def run_as_older_pytorch(*calls):
    """Calls tests of this file where PyTorch has neither the C exchange API nor raw streams."""
    script = (
        "import torch\n"
        "import attune.torch\n"  # first, as PyTorch's compiler wants raw streams while it loads
        "if hasattr(torch.Tensor, '__dlpack_c_exchange_api__'):\n"
        "    del torch.Tensor.__dlpack_c_exchange_api__\n"
        "if hasattr(torch._C, '_cuda_getCurrentRawStream'):\n"
        "    del torch._C._cuda_getCurrentRawStream\n"
        "import test_torch\n"
    )
    script += "".join(f"test_torch.{call}\n" for call in calls)
    folder = pathlib.Path(__file__).parent
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_refusals_with_an_older_pytorch():
    run_as_older_pytorch("test_cpu_tensors_are_refused()", "test_float32_is_refused()")


@gpu
def test_results_with_an_older_pytorch():
    run_as_older_pytorch(
        "test_agrees_with_float32(torch.bfloat16, True)",
        "test_packed()",
        "test_mixed_devices_are_refused()",
        "test_gradients_that_are_not_wanted()",
        "test_runs_on_the_current_stream()",
        "test_lengths_of_a_cache()",
    )


@gpu
def test_mixed_devices_are_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="k is on the device cpu; it must be on cuda:0, as q is"):
        attune.flash_attn_func(q, k.cpu(), v)


@gpu
@pytest.mark.parametrize("causal", [False, True])
def test_values_of_another_head_dim(causal):
    if not attune.explain(head_dim=192, head_dim_v=128).served:
        pytest.skip("this GPU has no kernel for it")
    q, k, v = (
        torch.randn(2, 300, 4, d, device="cuda", dtype=torch.bfloat16) for d in (192, 192, 128)
    )
    out = attune.flash_attn_func(q, k, v, causal=causal)
    assert out.shape == (2, 300, 4, 128)
    assert_close(out, q, k, v, causal)


@gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_agrees_with_float32(dtype, causal):
    q, k, v = inputs(dtype)
    out, lse, _ = attune.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    assert_close(out, q, k, v, causal)
    torch.testing.assert_close(lse, expected(q, k, v, causal)[1], rtol=1e-4, atol=1e-4)


@gpu
def test_packed():
    qkv = torch.randn(2, 100, 3, 4, 64, dtype=torch.bfloat16, device="cuda")
    assert_close(attune.flash_attn_qkvpacked_func(qkv), *qkv.unbind(2))
    q, kv = qkv[:, :, 0], qkv[:, :, 1:]
    assert_close(attune.flash_attn_kvpacked_func(q, kv), *qkv.unbind(2))


@gpu
def test_output_has_the_layout_of_q():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs())
    out = attune.flash_attn_func(q, k, v)
    assert out.stride() == q.stride()
    assert_close(out, q, k, v)


@gpu
def test_gradients_that_are_not_wanted():
    q, k, v = inputs(requires_grad=True)
    assert attune.flash_attn_func(q, k, v).requires_grad
    with torch.no_grad():
        out = attune.flash_attn_func(q, k, v)
        assert_close(out, q, k, v)
    assert not out.requires_grad


@gpu
def test_runs_on_the_current_stream():
    q, k, v = inputs()
    attune.flash_attn_func(q, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        late = q * 2
        out = attune.flash_attn_func(late, k, v)
    stream.synchronize()
    assert_close(out, late, k, v)


@gpu
def test_lengths_of_a_cache():
    q, k, v = inputs()
    lengths = torch.full((2,), 100, dtype=torch.int32, device="cuda")
    out = attune.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=lengths)
    assert_close(out, q[:, :1], k[:, :100], v[:, :100])


@gpu
def test_can_be_captured_in_a_graph():
    q, k, v = inputs()
    attune.flash_attn_func(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attune.flash_attn_func(q, k, v)
    q.mul_(0.5)
    graph.replay()
    assert_close(out, q, k, v)


@gpu
def test_a_thread_that_has_not_used_cuda():
    q, k, v = inputs()
    results = []
    thread = threading.Thread(target=lambda: results.append(attune.flash_attn_func(q, k, v)))
    thread.start()
    thread.join()
    assert_close(results[0], q, k, v)


@gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="PyTorch finds one GPU")
def test_a_device_that_is_not_the_current_one():
    q, k, v = inputs(device="cuda:1")
    out, lse, _ = attune.flash_attn_func(q, k, v, return_attn_probs=True)
    assert_close(out, q, k, v)
    assert lse.device == q.device
    assert torch.cuda.current_device() == 0
