"""explain, jit and cache: in the emulator, for GPUs that are not here, where PyTorch finds one."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import typing
from pathlib import Path

import numpy as np
import pytest

import attune

Q = np.zeros((2, 8, 4, 64), "float16")
K = np.zeros((2, 16, 2, 64), "float16")
BEYOND_ANY_GRID = 20_000_000  # queries


@pytest.fixture
def kernel():
    """The entry of a kernel in the tests' cache."""
    name = attune.jit(Q, K, K)
    return next(entry for entry in attune.cache.list() if entry.name == name)


@pytest.fixture
def copied(kernel, tmp_path, monkeypatch):
    """The same in a cache of its own."""
    folder = tmp_path / kernel.folder.relative_to(attune.cache.root)
    shutil.copytree(kernel.folder, folder)
    monkeypatch.setenv("ATTUNE_CACHE_DIR", str(tmp_path))
    return dataclasses.replace(kernel, folder=folder)


def test_explain_has_the_facts_and_the_text_of_the_tool():
    explained = attune.explain(
        dtype="bf16", head_dim=72, heads_q=8, heads_kv=2, seqlen_q=100, causal=True, arch="sm_86"
    )
    assert explained.problem == "bf16 d72 b1 hq8 hk2 lq100 lk100 causal"
    assert explained.device == "NVIDIA A40"
    assert explained.served
    assert explained.refusals == ()
    assert explained.source in ("ready", "nvrtc")
    assert explained.frozen == (explained.variant if explained.source == "ready" else None)
    assert explained.variant.startswith("prefill_sm80_bf16_d")
    assert min(explained.grid) >= 1
    assert explained.threads % 32 == 0
    assert 0 < explained.shared_bytes <= 99 * 1024
    lines = str(explained).splitlines()
    assert lines[0] == "bf16 d72 b1 hq8 hk2 lq100 lk100 causal on NVIDIA A40"
    assert lines[1].endswith(explained.variant)
    assert f"{explained.threads} threads a block" in lines[2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        explained.variant = "another"


def test_explain_defaults_to_the_problem_of_the_tool():
    explained = attune.explain(arch="sm_90")
    assert explained.problem == "bf16 d128 b1 hq16 hk16 lq1024 lk1024"
    assert attune.explain(seqlen_q=7, heads_q=4, arch="sm_90").problem.endswith("hq4 hk4 lq7 lk7")


def test_explain_lists_each_embedded_kernel_with_its_reasons():
    explained = attune.explain(head_dim=64, arch="sm_90")
    willing = [name for name, reasons in explained.considered.items() if not reasons]
    assert (explained.variant in willing) == (explained.source == "ready")
    for name, reasons in explained.considered.items():
        assert ("_fp16_" in name) == any(reason.startswith("dtype: ") for reason in reasons)


def test_explain_of_arrays_is_that_of_their_sizes_in_the_emulator():
    sizes = {"batch": 2, "seqlen_q": 8, "seqlen_k": 16, "heads_q": 4, "heads_kv": 2, "head_dim": 64}
    explained = attune.explain(Q, K, K, causal=True)
    assert explained.source == "host compiler"
    assert explained == attune.explain(dtype="fp16", causal=True, arch="emulator", **sizes)
    assert attune.explain(Q, K, K, arch="sm_80") == attune.explain(
        dtype="fp16", arch="sm_80", **sizes
    )


def test_explain_of_arrays_is_that_of_their_padded_copies():
    assert attune.explain(Q[..., :59], K[..., :59], K[..., :59]) == attune.explain(Q, K, K)


def test_explain_says_why_nothing_serves():
    explained = attune.explain(seqlen_q=BEYOND_ANY_GRID, arch="sm_80")
    assert not explained.served
    assert explained.refusals[0].startswith(f"grid: seqlen_q is {BEYOND_ANY_GRID}")
    assert (explained.grid, explained.threads, explained.shared_bytes) == (None, None, None)
    assert f"no kernel can serve it: {explained.refusals[0]}" in str(explained)


@pytest.mark.parametrize("dtype", ["fp16", "float16", np.float16, np.dtype("float16")])
def test_dtypes_by_the_names_of_the_tool_and_of_numpy(dtype):
    assert attune.explain(dtype=dtype, arch="sm_80").problem.startswith("fp16 ")


@pytest.mark.parametrize("function", [attune.explain, attune.jit])
@pytest.mark.parametrize(
    ("arrays", "options", "error", "message"),
    [
        ((Q, K, K), {"batch": 2}, TypeError, "batch is given together with arrays"),
        ((Q, K, K), {"dtype": "fp16"}, TypeError, "dtype is given together with arrays"),
        ((Q,), {}, TypeError, "k is a NoneType; it must be a PyTorch CUDA tensor, a CuPy, JAX or"),
        ((Q, K, K.astype("float32")), {}, TypeError, "v has dtype float32; it must be float16, as"),
        ((Q.astype("float32"),) * 3, {}, TypeError, "q has dtype float32; it must be fp16 (float1"),
        (
            (Q, K[0], K),
            {},
            ValueError,
            "k has shape (16, 2, 64); it must be (batch, seqlen, heads,",
        ),
        ((Q, K[:1], K), {}, ValueError, "k has shape (1, 16, 2, 64); it must be (2, 16, 2, 64)"),
        ((Q, K, K[:, 1:]), {}, ValueError, "v has shape (2, 15, 2, 64); it must be (2, 16, 2, 64)"),
        ((Q[:, :, :3], K, K), {}, ValueError, "heads_kv is 2; it must divide heads_q, which is 3"),
        ((), {"dtype": "fp8"}, TypeError, "dtype is fp8; it must be fp16 (float16) or bf16 (bfloa"),
        ((), {"head_dim": 257}, ValueError, "head_dim is 257; it must be from 1 to 256"),
        ((), {"head_dim_v": 257}, ValueError, "head_dim_v is 257; it must be from 1 to 256"),
        ((), {"head_dim": "64"}, TypeError, "head_dim is a str; it must be an integer"),
        ((), {"seqlen_k": 2**31}, ValueError, "seqlen_k is 2147483648; it must fit 31 bits"),
        ((), {"batch": -1}, ValueError, "batch is -1; it must fit 31 bits"),
        ((), {"arch": "sm_12"}, ValueError, "arch is 'sm_12'; it must be h200, "),
    ],
)
def test_mistakes_are_named(function, arrays, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        function(*arrays, **({"arch": "sm_90"} | options))


def test_values_of_another_head_dim_have_a_kernel_on_9_0():
    explained = attune.explain(head_dim=192, head_dim_v=128, arch="sm_90")
    assert explained.served
    assert explained.problem.startswith("bf16 d192v128 ")
    assert explained.variant.startswith("prefill_sm90_bf16_d192_v128_")
    q, k, v = (np.zeros((1, 8, 2, d), "float16") for d in (192, 192, 128))
    assert attune.explain(q, k, v, arch="sm_90").variant.startswith("prefill_sm90_fp16_d192_v128_")
    assert attune.explain(head_dim=192, head_dim_v=192, arch="sm_90").problem.startswith(
        "bf16 d192 "
    )
    (refusal,) = attune.explain(head_dim=192, head_dim_v=128, arch="sm_80").refusals
    assert refusal == "head_dim_v: prefill_sm80 has no kernels with it, the problem has 128"


def test_jit_names_the_kernel_and_keeps_it_on_disk(kernel):
    assert kernel.name == attune.explain(Q, K, K).variant
    assert kernel.arch == "emulator"
    assert kernel.valid
    assert kernel.problem == ""
    assert kernel.bytes > 1000
    assert kernel.folder.is_dir()


def test_jit_by_sizes_makes_what_a_call_needs():
    name = attune.jit(dtype="fp16", head_dim=88, causal=True, arch="emulator")
    assert name in [entry.name for entry in attune.cache.list()]
    before = attune.cache.list()
    q = np.zeros((1, 8, 2, 88), "float16")
    attune.flash_attn_func(q, q, q, causal=True)
    assert attune.cache.list() == before


SLOPE = np.ones(4, "float32")
DOCUMENT = np.zeros((2, 16), "int32")
#: What a call does to its scores, and what of it is in the name of its kernel.
SCORES = {
    "a window": ({"window_size": (3, 0)}, "_window"),
    "a soft cap": ({"softcap": 2.0}, "_softcap"),
    "a soft cap as a score": ({"score": "2.0 * tanh(s / 2.0)"}, "_softcap"),
    "a causal mask as a mask": ({"mask": lambda k, p: k <= p}, "_causal"),
    "a score": ({"score": lambda s, h, slope: s + slope[h], "params": {"slope": SLOPE}}, "slope_"),
    "documents": ({"mask": "d[b, p] == d[b, k]", "params": {"d": DOCUMENT}}, "_d_"),
}


@pytest.mark.parametrize("which", SCORES)
def test_jit_and_explain_take_what_a_call_does_to_its_scores(which):
    named, part = SCORES[which]
    explained = attune.explain(Q, K, K, **named)
    assert explained.served
    assert part in explained.variant
    assert attune.jit(Q, K, K, **named) == explained.variant
    before = attune.counters(emulator=True).misses, attune.cache.list()
    attune.attention(Q, K, K, **named)
    assert (attune.counters(emulator=True).misses, attune.cache.list()) == before
    assert attune.explain(Q, K, K, **named).loaded == explained.variant


def test_explain_of_sizes_takes_expressions_that_say_what_they_read():
    score = "s + slope[h] * (k - p) where slope: fp32[head]"
    explained = attune.explain(heads_q=4, score=score, mask="k <= p", arch="sm_90")
    assert explained.variant.startswith("prefill_sm90_bf16_d128_")
    assert "causal" in explained.problem and "slope[h] * real(k - p)" in explained.problem


@pytest.mark.parametrize("function", [attune.explain, attune.jit])
@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"score": "s + slope[h]"}, ValueError, "score:1:5: there is no name slope"),
        ({"mask": "k"}, ValueError, "mask:1:1: the mask is an integer; it must be a boolean"),
        ({"mask": SLOPE}, TypeError, "mask is a ndarray; it must be a text or a function"),
        ({"params": [SLOPE]}, TypeError, "params is a list; it must map names to arrays"),
        ({"window_size": (1,)}, TypeError, "window_size is (1,); it must be (left, right)"),
        ({"softcap": -1.0}, ValueError, "softcap is -1"),
        ({"softcap": "high"}, TypeError, "softcap is a str; it must be a number"),
        (
            {"score": "s + slope[h]", "params": {"slope": SLOPE}},
            ValueError,
            "params: extent 0 of slope is 4; it must be 16",
        ),
        (
            {"score": "s + slope[h] where slope: fp32[head]", "params": {"slope": DOCUMENT[0]}},
            ValueError,
            "params: slope has elements of another type; slope: fp32[head]",
        ),
        (
            {"score": "s + slope[h] where slope: fp32[head]", "params": {"other": SLOPE}},
            ValueError,
            "params: slope is missing",
        ),
        ({"params": {"slope": 3.0}}, TypeError, "params['slope'] is a float; it must be an array"),
        (
            {"score": "s + t[h] where t: fp32[head]", "mask": "t[h] > 0 where t: int32[head]"},
            ValueError,
            "params: the score has t: fp32[head], the mask t: int32[head]",
        ),
    ],
    ids=repr,
)
def test_mistakes_in_what_happens_to_scores_are_named(function, named, error, message):
    with pytest.raises(error, match=re.escape(message)):
        function(arch="sm_90", **named)


@pytest.mark.parametrize(
    ("arch", "device"), [("emulator", "emulator"), ("sm_80", "NVIDIA A100-SXM4-80GB")]
)
def test_jit_refuses_what_no_kernel_serves(arch, device):
    message = f"no kernel can serve .* on {device}: grid: seqlen_q is {BEYOND_ANY_GRID}"
    with pytest.raises(NotImplementedError, match=message):
        # Without keys, as kernels with tensor maps take any number of queries, but one key at least.
        attune.jit(seqlen_q=BEYOND_ANY_GRID, seqlen_k=0, arch=arch)


def test_jit_for_a_gpu_that_is_not_here_compiles_what_is_not_embedded():
    explained = attune.explain(head_dim=64, arch="sm_80")
    try:
        name = attune.jit(head_dim=64, arch="sm_80")
    except RuntimeError as error:
        if "libnvrtc" not in str(error):
            raise
        pytest.skip(f"no NVRTC: {error}")
    assert name == explained.variant
    on_disk = [entry.name for entry in attune.cache.list() if entry.arch == "sm_80"]
    assert (name in on_disk) == (explained.source == "nvrtc")


def test_jit_to_disk_needs_a_cache_folder(monkeypatch):
    if attune.explain(head_dim=64, arch="sm_80").source == "ready":
        pytest.skip("the kernel is embedded")
    for name in ("ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="there is no cache folder"):
        attune.jit(head_dim=64, arch="sm_80")


def test_cache_root_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTUNE_CACHE_DIR", str(tmp_path))
    assert attune.cache.root == tmp_path
    assert repr(attune.cache) == f"KernelCache(root='{tmp_path}')"
    assert attune.cache.list() == ()
    assert attune.cache.clear() == 0
    monkeypatch.delenv("ATTUNE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert attune.cache.root == tmp_path / "attune"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert attune.cache.root is None
    assert attune.cache.list() == ()


def test_cache_verify_finds_what_is_not_whole(copied):
    assert attune.cache.list() == (copied,)
    assert attune.cache.verify() == ()
    image = copied.folder / "kernel.so"
    image.write_bytes(image.read_bytes()[:-1])
    (bad,) = attune.cache.verify()
    assert bad.folder == copied.folder
    assert not bad.valid
    assert bad.problem
    assert attune.cache.list() == (bad,)


def test_cache_clear_removes_and_counts(copied):
    assert attune.cache.clear() == 1
    assert attune.cache.list() == ()
    assert not copied.folder.exists()


@pytest.mark.parametrize("function", [attune.explain, attune.jit])
def test_functions_are_documented_and_typed(function):
    hints = typing.get_type_hints(function)
    assert "return" in hints
    for name in set(hints) - {"return"}:
        assert f"    {name}: " in attune.explain.__doc__


def test_facts_are_documented_and_typed():
    for kind in (attune.Explanation, attune.CacheEntry):
        for one in dataclasses.fields(kind):
            assert one.name in typing.get_type_hints(kind)
            assert f"    {one.name}: " in kind.__doc__
    assert typing.get_type_hints(attune.CacheEntry)["folder"] is Path


def test_without_a_gpu_the_way_out_is_named():
    if gpu_is_here():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="no GPU here .*; name one by arch, 'h200' say"):
        attune.jit()


def test_where_no_gpu_is_explain_is_for_the_usual_one():
    if gpu_is_here():
        pytest.skip("there is a GPU")
    assert attune.explain() == attune.explain(arch="h200")
    assert attune.explain().device == "NVIDIA H200"
    assert attune.explain(arch="a100").device == "NVIDIA A100-SXM4-80GB"
    assert attune.explain(arch="a100") == attune.explain(arch="sm_80")


def gpu_is_here():
    try:
        attune.jit()
    except RuntimeError:
        return False
    return True


def torch_on_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    return torch


def test_tensors_are_explained_for_their_gpu():
    torch = torch_on_gpu()
    q = torch.zeros(2, 8, 4, 64, dtype=torch.bfloat16, device="cuda")
    k = torch.zeros(2, 16, 2, 64, dtype=torch.bfloat16, device="cuda")
    explained = attune.explain(q, k, k)
    assert explained.device == torch.cuda.get_device_name(q.device)
    assert explained.problem == "bf16 d64 b2 hq4 hk2 lq8 lk16"
    assert explained == attune.explain(
        dtype=torch.bfloat16, batch=2, seqlen_q=8, seqlen_k=16, heads_q=4, heads_kv=2, head_dim=64
    )
    assert attune.jit(q, k, k) == explained.variant


def test_cpu_tensors_are_refused():
    torch = pytest.importorskip("torch")
    q = torch.zeros(1, 8, 2, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match="q is on the device cpu; it must be on a CUDA device"):
        attune.explain(q, q, q)


def test_a_first_call_after_jit_can_be_captured_in_a_graph():
    torch = torch_on_gpu()
    q = torch.randn(1, 64, 2, 136, dtype=torch.float16, device="cuda")
    attune.jit(q, q, q, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attune.flash_attn_func(q, q, q, causal=True)
    graph.replay()
    assert torch.equal(out, attune.flash_attn_func(q, q, q, causal=True))


def test_jit_on_a_thread_that_has_not_used_cuda():
    torch = torch_on_gpu()
    torch.zeros(1, device="cuda")
    names = []
    thread = threading.Thread(target=lambda: names.append(attune.jit(dtype="fp16", head_dim=200)))
    thread.start()
    thread.join()
    assert names == [attune.explain(dtype="fp16", head_dim=200).variant]


def test_jit_on_another_gpu_leaves_the_current_one():
    torch = torch_on_gpu()
    if torch.cuda.device_count() < 2:
        pytest.skip("PyTorch finds one GPU")
    q = torch.zeros(1, 8, 2, 64, dtype=torch.float16, device="cuda:1")
    torch.zeros(1, device="cuda:0")
    assert attune.jit(q, q, q) == attune.explain(q, q, q).variant
    assert torch.cuda.current_device() == 0
    assert attune.flash_attn_func(q, q, q).device == q.device


def test_counters_say_how_calls_were_served():
    before = attune.counters(emulator=True)
    attune.jit(Q, K, K)
    attune.jit(Q, K, K)
    after = attune.counters(emulator=True)
    assert after.hits + after.misses == before.hits + before.misses + 2
    assert after.hits > before.hits
    assert after.failures == before.failures
    assert attune.counters(emulator=False).pending == 0


def test_counters_count_calls_of_every_kind():
    before = attune.counters()
    attune.flash_attn_func(Q, K, K)
    after = attune.counters()
    assert after.hits + after.misses > before.hits + before.misses
    assert attune.counters(emulator=False).hits == 0
    assert attune.counters(emulator=True).hits == after.hits


def test_the_environment_says_when_to_compile(tmp_path):
    def run(policy):
        code = "import attune; attune.jit(head_dim=16, seqlen_q=8, arch='emulator')"
        return subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            env=os.environ | {"ATTUNE_COMPILE": policy, "ATTUNE_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    assert "ATTUNE_COMPILE_FROZEN" in run("frozen").stderr
    assert run("missing").returncode == 0
    assert run("frozen").returncode == 0
    assert run("background").returncode == 0
    wrong = run("never").stderr
    assert 'ATTUNE_COMPILE is "never"; it must be missing, frozen, exact or background' in wrong


def test_a_record_has_every_call_of_a_process_that_has_ended(tmp_path):
    record = tmp_path / "calls.jsonl"
    code = """
import numpy as np
import attune
q = np.zeros((1, 3, 1, 64), "float16")
for _ in range(3):
    attune.flash_attn_func(q, q, q)
"""
    environment = {**os.environ, "ATTUNE_RECORD": str(record)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert sum(json.loads(line)["calls"] for line in record.read_text().splitlines()) == 3


def test_explain_says_what_this_process_has_loaded():
    q = np.zeros((1, 2, 1, 72), "float16")
    before = attune.explain(q, q, q, arch="emulator")
    attune.flash_attn_func(q, q, q)
    after = attune.explain(q, q, q, arch="emulator")
    assert after.loaded == after.variant
    assert after.coming is None
    assert before.loaded in (None, after.loaded)
    assert str(after).splitlines()[-1] == f"this process serves it with {after.variant}"
    assert attune.explain(q, q, q, arch="sm_90").loaded is None


@pytest.mark.parametrize("tool", [attune.explain, attune.jit])
def test_a_text_with_a_zero_inside_is_refused_by_the_tools_too(tool):
    q = np.zeros((1, 4, 1, 64), "float16")
    with pytest.raises(ValueError, match="score:1:2: the control character 0x00"):
        tool(q, q, q, score="s\0 ((")
