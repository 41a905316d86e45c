"""What a person reads: help(), signatures and type hints."""

import inspect
import pydoc
import typing
from importlib.resources import files

import pytest

import attune

FUNCTIONS = [getattr(attune, name) for name in attune.__all__ if name.startswith("flash_attn_")]
SERVING = [attune.store_kvcache, attune.merge_attn_states]

OPTIONS = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "alibi_slopes=None, deterministic=False, return_attn_probs=False"
)
RAGGED = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
CACHED = (
    "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
    "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
    "return_softmax_lse=False"
)
#: What is promised: by position flash-attn 2.8's names, in its order, with its defaults; behind the star what
#: flash-attn 3 (seqused_q, seqused_k, cu_seqlens_q, max_seqlen_q) or Attune alone has.
SIGNATURES = {
    "flash_attn_func": f"q, k, v, {OPTIONS}",
    "flash_attn_kvpacked_func": f"q, kv, {OPTIONS}",
    "flash_attn_qkvpacked_func": f"qkv, {OPTIONS}",
    "flash_attn_varlen_func": (
        f"q, k, v, {RAGGED}, {OPTIONS}, block_table=None, "
        "*, seqused_q=None, seqused_k=None, out=None"
    ),
    "flash_attn_varlen_kvpacked_func": f"q, kv, {RAGGED}, {OPTIONS}",
    "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {OPTIONS}",
    "flash_attn_with_kvcache": (
        f"{CACHED}, *, out=None, check_tables=False, cu_seqlens_q=None, max_seqlen_q=None"
    ),
}


def signature_of(function):
    """Names and defaults, without types."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(parameters))[1:-1]


def test_signatures_are_those_of_flash_attn():
    assert {one.__name__: signature_of(one) for one in FUNCTIONS} == SIGNATURES


def test_signatures_for_compiled_programs_are_the_same():
    library = pytest.importorskip("attune.torch")
    for name, expected in SIGNATURES.items():
        found = signature_of(getattr(library, name))
        without_out = expected.replace(", *, out=None", ", *").replace(", out=None", "")
        assert found == without_out


@pytest.mark.skipif(not hasattr(typing, "get_overloads"), reason="Python 3.11 has get_overloads")
@pytest.mark.parametrize(
    "function", [*FUNCTIONS, attune.merge_attn_states], ids=lambda f: f.__name__
)
def test_result_types_follow_from_what_is_returned(function):
    flag = next(
        name for name in inspect.signature(function).parameters if name.startswith("return_")
    )
    names = set(inspect.signature(function).parameters)
    kinds = []
    for one in typing.get_overloads(function):
        assert set(inspect.signature(one).parameters) == names
        kinds.append(one.__annotations__[flag])
    assert kinds == ["Literal[False]", "Literal[True]", "bool"]


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


@pytest.mark.parametrize("function", FUNCTIONS + SERVING, ids=lambda function: function.__name__)
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
