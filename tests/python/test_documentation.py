"""What a person reads: help(), signatures and type hints."""

import inspect
import pydoc
import typing
from importlib.resources import files

import pytest

import attune

FUNCTIONS = [getattr(attune, name) for name in attune.__all__ if name.startswith("flash_attn_")]
SERVING = [attune.store_kvcache, attune.merge_attn_states]
OPTIONS = {  # flash-attn 2's, in its order
    "dropout_p": 0.0,
    "softmax_scale": None,
    "causal": False,
    "window_size": (-1, -1),
    "softcap": 0.0,
    "alibi_slopes": None,
    "deterministic": False,
    "return_attn_probs": False,
}
CACHE_OPTIONS = {  # of its function for a cache, those that are served, and out
    "k": None,
    "v": None,
    "rotary_cos": None,
    "rotary_sin": None,
    "cache_seqlens": None,
    "cache_batch_idx": None,
    "block_table": None,
    "softmax_scale": None,
    "causal": False,
    "window_size": (-1, -1),
    "softcap": 0.0,
    "rotary_interleaved": True,
    "num_splits": 0,
    "return_softmax_lse": False,
    "out": None,
    "check_tables": False,
    "cu_seqlens_q": None,
    "max_seqlen_q": None,
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_signatures_are_those_of_flash_attn(function):
    parameters = inspect.signature(function).parameters
    arrays = [name for name, one in parameters.items() if one.default is one.empty]
    assert (
        arrays
        == {
            "flash_attn_func": ["q", "k", "v"],
            "flash_attn_kvpacked_func": ["q", "kv"],
            "flash_attn_qkvpacked_func": ["qkv"],
            "flash_attn_varlen_func": [
                *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
            ],
            "flash_attn_with_kvcache": ["q", "k_cache", "v_cache"],
        }[function.__name__]
    )
    options = {name: one.default for name, one in parameters.items() if name not in arrays}
    expected = {
        "flash_attn_with_kvcache": CACHE_OPTIONS,
        "flash_attn_varlen_func": OPTIONS | {"block_table": None, "seqused_k": None, "out": None},
    }.get(function.__name__, OPTIONS)
    assert list(options.items()) == list(expected.items())


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
