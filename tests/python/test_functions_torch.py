"""The list of functions (attune/_functions) beside attune.torch. Skipped, by name, without PyTorch."""

import inspect

import pytest

import attune
from attune._functions import FUNCTIONS, REQUIRED, SCHEMAS, for_torch

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from attune.torch import _ops

#: The function of attune that serves one of attune.torch, where that is another one.
SERVED_BY = {
    "flash_attn_kvpacked_func": "flash_attn_func",
    "flash_attn_qkvpacked_func": "flash_attn_func",
    "flash_attn_varlen_kvpacked_func": "flash_attn_varlen_func",
    "flash_attn_varlen_qkvpacked_func": "flash_attn_varlen_func",
}
PACKED = {"kv": 2, "qkv": 3}

RAGGED = {
    *("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "seqused_q", "seqused_k"),
    "block_table",
}
APPENDED = {"k_new", "v_new", "rotary_cos", "rotary_sin", "rotary_interleaved"}
CACHE = {"cache_seqlens", "cache_batch_idx", "cache_leftpad", "num_splits"}
#: Arguments that do not go together: each call leaves some of them out.
LEFT_OUT = {
    "flash_attn_with_kvcache": (
        {"k", "v", "rotary_cos", "rotary_sin", "rotary_interleaved"},
        {"cu_seqlens_q", "max_seqlen_q"},
    ),
    "flash_attn_varlen_func": ({"block_table"}, {"dropout_p", "rng_state"}),
    "attention": (
        RAGGED | APPENDED | CACHE,
        APPENDED | CACHE,
        RAGGED - {"block_table"},
        (RAGGED | APPENDED) - {"cu_seqlens_q", "max_seqlen_q"},
    ),
}
CALLS = [(name, without) for name in FUNCTIONS for without in LEFT_OUT.get(name, (set(),))]


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_operator_has_the_schema_of_the_list(name):
    expected = torch._C.parse_schema(f"attune::{SCHEMAS[name]}")
    assert getattr(torch.ops.attune, name).default._schema == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_documented_by_the_list(name):
    text = getattr(library, name).__doc__
    assert text.startswith(f"attune.{name} of PyTorch tensors, through an operator")
    assert FUNCTIONS[name].summary in text
    for one in FUNCTIONS[name].arguments:
        assert one.in_torch or f"    {one.name}: " not in text


def values_for(function, names):
    """Values for these arguments, none of which is the default or another's."""
    values = {}
    for number, one in enumerate(function.arguments, 2):
        kind = one.type.removesuffix(" | None")
        if one.name not in names:
            continue
        if one.name in PACKED:
            rows = (number,) if "varlen" in function.name else (1, number)
            values[one.name] = torch.zeros(*rows, PACKED[one.name], 1, 1, dtype=torch.int32)
        elif kind == "Expression":
            values[one.name] = f"k == {number}"
        elif kind.startswith("Mapping"):
            values[one.name] = {"one": torch.full((1, 1), number, dtype=torch.int32)}
        elif kind == "Pair":
            values[one.name] = (number, number + 100)
        elif "Array" in kind:
            values[one.name] = torch.full((1, 1), number, dtype=torch.int32)
        else:
            values[one.name] = {"bool": not one.default, "int": number, "float": number / 4}[kind]
    return values


def same(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def received(name, monkeypatch, given):
    """The arguments of attune's function that serves the call, by name."""
    calls = []
    server = SERVED_BY.get(name, name)
    signature = inspect.signature(getattr(attune, server))

    def serve(*passed, **named):
        bound = signature.bind(*passed, **named)
        bound.apply_defaults()
        calls.append(bound.arguments)
        out = torch.zeros(1)
        if FUNCTIONS[server].result == "None":
            return None
        if FUNCTIONS[server].result.startswith("tuple"):
            return tuple(torch.zeros(1) for _ in range(FUNCTIONS[server].result.count("Array")))
        asked = bound.arguments.get(FUNCTIONS[server].flag)
        return (out, torch.zeros(1), None) if asked else out

    monkeypatch.setitem(_ops.functions, server, serve)
    getattr(library, name)(**given)
    (call,) = calls
    return call


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(("name", "without"), CALLS)
def test_a_function_hands_each_argument_through_its_operator(name, without, asked, monkeypatch):
    function = for_torch(FUNCTIONS[name])
    passed = [one for one in function.arguments if one.use == "passed"]
    given = values_for(function, {one.name for one in passed} - without)
    if function.flag:
        given[function.flag] = asked
    found = received(name, monkeypatch, given)
    for one in passed:
        if one.name in found and one.name != function.flag:
            assert same(found[one.name], given.get(one.name, one.default)), one.name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_leaves_out_what_is_left_out(name, monkeypatch):
    function = for_torch(FUNCTIONS[name])
    required = {one.name for one in function.arguments if one.default is REQUIRED}
    found = received(name, monkeypatch, values_for(function, required))
    for one in function.arguments:
        if one.default is not REQUIRED and one.name in found and one.name != function.flag:
            assert found[one.name] == one.default, one.name
