"""What a person reads: help(), signatures and type hints."""

import inspect
import pydoc
import typing
from importlib.resources import files

import pytest

import attune
from attune._functions import FUNCTIONS

EACH = [getattr(attune, name) for name in FUNCTIONS]

EXAMPLE = """
import numpy as np
import attune

q, k, v = np.zeros((3, 1, 2, 1, 8), "float16")
array = np.zeros((1, 2, 1, 8), "float16")
print(attune.flash_attn_func(array, array, array, causal=True).shape)
print(attune.flash_attn_func(array, array, array, window_size=np.array([1, 2])).shape)
out, lse, _ = attune.flash_attn_func(array, array, array, return_attn_probs=True)
print(attune.flash_attn_with_kvcache(array, array, array).shape, lse.shape)
out, lse = attune.flash_attn_with_kvcache(array, array, array, return_softmax_lse=True)
print(attune.merge_attn_states(out, lse, out, lse).shape)
"""


def test_examples_pass_a_type_checker(tmp_path, monkeypatch):
    checker = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(files("attune").parent))
    example = tmp_path / "example.py"
    example.write_text(EXAMPLE)
    report, errors, status = checker.run(
        ["--strict", f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent", str(example)]
    )
    assert (status, errors) == (0, ""), report


@pytest.mark.parametrize("function", EACH, ids=lambda function: function.__name__)
def test_functions_are_documented_and_typed(function):
    for name in inspect.signature(function).parameters:
        assert name in typing.get_type_hints(function)
        described = function.__doc__ + attune.flash_attn_func.__doc__
        assert f"    {name}: " in described
    assert "return" in typing.get_type_hints(function)


def test_help_names_everything_public():
    text = pydoc.plaintext.document(attune)
    for name in attune.__all__:
        assert {"__version__": "VERSION"}.get(name, name) in text
    assert "https://arxiv.org/abs/2307.08691" in text


def test_the_package_is_marked_as_typed():
    assert (files("attune") / "py.typed").is_file()
