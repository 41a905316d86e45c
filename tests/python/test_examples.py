"""The examples, as their users run them. What needs PyTorch, JAX or a GPU is skipped, by name, without."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import attune

EXAMPLES = Path(__file__).parents[2] / "examples"
TOOL = Path(attune.__file__).parents[2] / "bin" / "attune"

try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    pytest_plugins = "torch_device"
else:

    @pytest.fixture
    def torch_device():
        pytest.skip("could not import 'torch'")

    @pytest.fixture
    def backend():
        pytest.skip("could not import 'torch'")


def load(name):
    """An example as a module, which does nothing before its main() is called."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(line):
    return [float(one) for one in re.findall(r"[0-9.]+", line)]


def run(command, **environment):
    path = os.pathsep.join(
        [str(Path(attune.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here():
    text = Path(__file__).read_text(encoding="utf-8")
    names = {path.stem for path in (EXAMPLES / "python").glob("*.py")}
    assert names
    assert {name for name in names if f'"{name}' not in text} == set()


def test_prefill_and_decode_of_numpy_arrays():
    output = run([sys.executable, EXAMPLES / "python" / "prefill.py"])
    assert output.splitlines() == ["(2, 128, 4, 64) float16", "(2, 1, 8, 64) True"]


def test_masks_of_numpy_arrays():
    output = run([sys.executable, EXAMPLES / "python" / "masks.py"])
    assert output.splitlines() == [
        "the last document as if alone: True",
        "gradients of the last document alone: True",
        "(2, 4, 4, 64) float16",
    ]


def test_a_module_compiles_whole(torch_device, backend):
    assert load("torch_compile").main(torch_device, backend) < 1e-3


def test_a_model_generates(torch_device):
    pytest.importorskip("transformers", "4.53")
    tokens = load("transformers_generate").main(torch_device)
    assert tokens.shape == (1, 28)


def test_jax_calls_it_under_jit():
    pytest.importorskip("jax")
    assert load("jax_prefill").main() == (2, 128, 4, 64)


def test_a_graph_serves_every_step_of_decoding():
    if torch is None or not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    assert load("paged_decode_graph").main() < 0.02


def test_an_engine_gives_the_tokens_of_eager_attention():
    output = run([sys.executable, EXAMPLES / "python" / "serve.py", "--small"])
    lines = dict(line.split(": ", 1) for line in output.splitlines())
    generated, equal = map(int, lines["tokens generated"].split(", equal to eager attention's: "))
    assert equal == generated > 50
    found, steps, requests = (
        numbers(lines[name]) for name in ("prefix cache", "steps", "requests")
    )
    assert min(*found, *steps, *requests) > 0
    _, compiled = numbers(lines["first token with an empty cache of kernels"])
    assert (
        compiled > 0 or torch is not None and torch.cuda.is_available()
    )  # which has kernels ready
    _, compiled = numbers(lines["first token with a warm cache of kernels"])
    assert compiled == 0


def test_an_engine_serves_a_table_of_tokens(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "python"))
    result = load("serve").main(["--no-cold-start", "--page-size", "1"])
    assert result.equal == result.generated > 50


@pytest.mark.parametrize("page_size", [1, 16])
def test_an_engine_of_tensors_gives_the_tokens_of_eager_attention(
    page_size, torch_device, monkeypatch
):
    monkeypatch.syspath_prepend(str(EXAMPLES / "python"))
    arguments = ["--small", "--no-cold-start", "--page-size", str(page_size)]
    result = load("serve").main(arguments, torch_device)
    assert result.generated > 50
    assert result.short < 0.01  # of logits whose standard deviation is 1


def test_a_small_gpt_learns_as_with_attention_of_pytorch(torch_device, backend, tmp_path, capsys):
    example = load("train_gpt")
    config = example.Config(layers=1, heads=2, head_dim=32, context=48, batch=2, steps=4, seeds=2)
    picture = tmp_path / "losses.svg"
    runs = example.main(config, torch_device, backend, picture)
    own, flash, _ = runs.values()
    for one, other in zip(own, flash, strict=True):
        assert max(abs(x - y) for x, y in zip(one, other, strict=True)) < 0.01
        assert one[-1] < one[0] - 0.1
    assert abs(own[0][0] - own[1][0]) > 1e-3  # seeds have weights and batches of their own
    lines = ElementTree.parse(picture).getroot().findall("{*}polyline")
    assert [len(line.get("points").split()) for line in lines] == [4] * 5
    attune_apart, math_apart, ratio = capsys.readouterr().out.splitlines()[-4:-1]
    ends = [[example.end(losses) for losses in each] for each in runs.values()]
    for line, of in ((attune_apart, ends[0]), (math_apart, ends[2])):
        square = sum((x - y) ** 2 for x, y in zip(of, ends[1])) / 2
        assert float(line.split(" by ")[1].split(" ")[0]) == pytest.approx(square**0.5, rel=0.05)
    found, least, most, _ = numbers(ratio)
    assert least <= found <= most


def test_seeds_tell_how_sure_a_ratio_of_differences_is():
    if torch is None:
        pytest.skip("could not import 'torch'")
    example = load("train_gpt")
    one, other = [3.0, -4.0] * 4, [4.0, 3.0] * 4
    assert example.ratio(one, other) == 1
    least, most = example.likely_ratios(one, other)
    assert 3 / 4 <= least < 0.95 and 1.05 < most <= 4 / 3
    few = example.likely_ratios(one[:2], other[:2])
    assert few == (3 / 4, 4 / 3)


def test_a_frozen_server_compiles_nothing(tmp_path):
    if not TOOL.exists():
        pytest.skip(f"there is no {TOOL}")
    settings = {"ATTUNE": str(TOOL), "PYTHON": sys.executable}
    settings["ATTUNE_CACHE_DIR"] = str(tmp_path / "cache")
    output = run([EXAMPLES / "frozen" / "run.sh", tmp_path / "out"], **settings)
    compiled = [line for line in output.splitlines() if line.startswith("compiled: ")]
    assert compiled == ["compiled: 2", "compiled: 0", "compiled: 0"]
    assert (tmp_path / "out" / "kernels.attune").is_file()
