"""The list of functions (attune/_functions): everything that names an argument or a default says what it says.

What is compared is read from the package's sources, so that no framework has to be here; test_functions_torch.py calls
the functions of attune.torch.
"""

import ast
import inspect
import re
from importlib.resources import files
from pathlib import Path

import pytest
from flash_attn_2_8 import SIGNATURES

import attune
from attune import _attune
from attune._functions import FUNCTIONS, OPERATORS, REQUIRED, SCHEMAS, binder, for_torch
from attune._functions.expressions import EXPRESSIONS

PACKAGE = files("attune")
#: What the functions that attention traces may call.
TRACED = {"exp2", "log2", "maximum", "minimum", "real", "select", "tanh"}
#: What attune has beside: the tool's functions, and their results.
TOOLS = {
    "CacheEntry",
    "Counters",
    "Explanation",
    "KernelCache",
    "cache",
    "counters",
    "explain",
    "jit",
}

each_function = pytest.mark.parametrize("name", FUNCTIONS)
each_with_a_binding = pytest.mark.parametrize(
    "name", [name for name, one in FUNCTIONS.items() if one.binding]
)
#: Of what values are looked at on their way: others are anything.
TEXTS = {"score": "s", "mask": "k <= p", "params": {}}


def definitions(path):
    """The functions that a source or a stub defines, overloads apart, by their names."""
    tree = ast.parse((PACKAGE / path).read_text())
    return {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}


def signature(arguments):
    """(name, default, whether by name alone, annotation) of each argument of the list."""
    return [
        (one.name, None if one.default is REQUIRED else repr(one.default), one.by_name, one.type)
        for one in arguments
    ]


def signature_in(definition):
    """The same of a definition in a source."""
    arguments = definition.args
    assert not arguments.posonlyargs and not arguments.vararg and not arguments.kwarg
    required = len(arguments.args) - len(arguments.defaults)
    defaults = [None] * required + arguments.defaults
    both = [
        *((one, default, False) for one, default in zip(arguments.args, defaults, strict=True)),
        *(
            (one, default, True)
            for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ),
    ]
    return [
        (one.arg, default and ast.unparse(default), by_name, ast.unparse(one.annotation))
        for one, default, by_name in both
    ]


def in_torch(annotation):
    return annotation.replace("Array", "torch.Tensor")


def result_of(function):
    return f"{function.result} | {function.flagged}" if function.flag else function.result


def all_of(path):
    """The __all__ of a module."""
    for one in ast.parse((PACKAGE / path).read_text()).body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__":
            return set(ast.literal_eval(one.value))
    raise AssertionError(path)


def test_the_list_holds_every_function():
    assert set(attune.__all__) - TOOLS - TRACED - {"__version__"} == set(FUNCTIONS)
    assert all_of("torch/__init__.py") - {"register_transformers"} == set(FUNCTIONS)
    modules = {one.module for one in FUNCTIONS.values()}
    for folder in ("", "torch/"):
        defined = [name for one in modules for name in definitions(f"{folder}{one}.py")]
        assert sorted(defined) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", SIGNATURES)
def test_by_position_a_function_is_that_of_flash_attn(name):
    parameters = inspect.signature(getattr(attune, name)).parameters.values()
    found = [
        one.replace(annotation=one.empty) for one in parameters if one.kind is not one.KEYWORD_ONLY
    ]
    assert str(inspect.Signature(found)) == f"({SIGNATURES[name]})"


@each_function
def test_a_function_has_the_arguments_of_the_list(name):
    function = FUNCTIONS[name]
    found = definitions(f"{function.module}.py")[name]
    assert signature_in(found) == signature(function.arguments)
    assert ast.unparse(found.returns) == result_of(function)


@each_function
def test_a_function_for_compiled_programs_has_the_arguments_of_the_list(name):
    function = FUNCTIONS[name]
    arguments = [
        one._replace(type=in_torch(one.type)) for one in function.arguments if one.in_torch
    ]
    found = definitions(f"torch/{function.module}.py")[name]
    assert signature_in(found) == signature(arguments)
    assert ast.unparse(found.returns) == in_torch(result_of(function))


@each_function
def test_a_function_is_documented_by_the_list(name):
    function = FUNCTIONS[name]
    text = getattr(attune, name).__doc__
    assert text.startswith(f"{function.summary}\n")
    for one in function.arguments:
        assert not one.doc or f"\n    {one.name}: {one.doc.splitlines()[0]}\n" in text
    assert max(map(len, text.splitlines())) <= 108


@each_with_a_binding
def test_a_binding_takes_what_its_function_passes_on(name):
    function = FUNCTIONS[name]
    passed = [one.name for one in function.arguments if one.use == "passed"]
    assert arguments_of(getattr(_attune, function.binding)) == passed


def arguments_of(binding):
    """The names that nanobind has of them."""
    ((text, _doc, _defaults),) = binding.__nb_signature__
    (definition,) = ast.parse(f"{text}: ...").body
    return [one.arg for one in definition.args.args]


def test_the_stub_of_the_module_has_what_the_module_has():
    stub = definitions("_attune.pyi")
    found = {name for name in vars(_attune) if not name.startswith("_")} - {"version"}
    assert set(stub) == found
    for name, definition in stub.items():
        assert arguments_of(getattr(_attune, name)) == [one.arg for one in definition.args.args]


@each_function
@pytest.mark.parametrize("folder", ["", "torch/"])
def test_result_types_follow_from_what_is_asked_for(name, folder):
    function = FUNCTIONS[name] if not folder else for_torch(FUNCTIONS[name])
    tree = ast.parse((PACKAGE / f"{folder}{function.module}.pyi").read_text())
    found = []
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            arguments = {argument: type_ for argument, _, _, type_ in signature_in(one)}
            assert list(arguments) == [argument.name for argument in function.arguments]
            found.append((arguments.get(function.flag), ast.unparse(one.returns)))
    type_of = in_torch if folder else str
    if not function.flag:
        assert found == [(None, type_of(function.result))]
        return
    assert found == [
        ("Literal[False]", type_of(function.result)),
        ("Literal[True]", type_of(function.flagged)),
        ("bool", type_of(result_of(function))),
    ]


@each_with_a_binding
def test_a_function_hands_each_argument_to_its_binding(name, monkeypatch):
    function = FUNCTIONS[name]
    calls = []
    monkeypatch.setattr(f"attune._attune.{function.binding}", lambda *passed: calls.append(passed))
    given = {one.name: TEXTS.get(one.name, object()) for one in function.arguments}
    getattr(attune, name)(**given)
    passed = [given[one.name] for one in function.arguments if one.use == "passed"]
    required = [one for one in function.arguments if one.default is REQUIRED]
    getattr(attune, name)(**{one.name: given[one.name] for one in required})
    defaults = [
        given[one.name] if one.default is REQUIRED else one.default
        for one in function.arguments
        if one.use == "passed"
    ]
    assert calls == [tuple(passed), tuple(defaults)]


def fakes():
    """(operator, the name of its fake), as attune.torch registers them."""
    for one in ast.walk(ast.parse((PACKAGE / "torch/_ops.py").read_text())):
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "_register":
            yield ast.literal_eval(one.args[0]), ast.unparse(one.args[1])


def arguments_of_schema(name):
    """(type, name, default) of each argument of an operator."""
    (arguments,) = re.findall(rf"^{name}\((.*)\) -> ", SCHEMAS[name])
    for one in arguments.split(", "):
        type_, argument, default = re.fullmatch(r"(\S+) (\w+)(?:=(.*))?", one).groups()
        yield type_, argument, default


def test_every_operator_of_the_list_is_registered():
    registered = [name for name, _ in fakes()]
    assert sorted(registered) == sorted(SCHEMAS)
    text = ast.get_docstring(ast.parse((PACKAGE / "torch/__init__.py").read_text()))
    assert all(re.search(rf"\b{name}\b", text) for name in SCHEMAS)


@pytest.mark.parametrize(("name", "fake"), list(fakes()))
def test_a_fake_has_the_arguments_of_its_operators_schema(name, fake):
    expected = [argument for _, argument, _ in arguments_of_schema(name)]
    module, function = fake.split(".")
    definition = definitions(f"torch/{module}.py")[function]
    leading = [one.arg for one in definition.args.args]
    assert leading == expected[: len(leading)]
    takes_the_rest = definition.args.vararg is not None and definition.args.kwarg is not None
    assert takes_the_rest or len(leading) == len(expected)
    results = SCHEMAS[name].split(" -> ")[1].strip("()")
    count = len(list(filter(None, results.split(", "))))
    returned = {0: "None", 1: "torch.Tensor"}.get(
        count, f"tuple[{', '.join(['torch.Tensor'] * count)}]"
    )
    assert ast.unparse(definition.returns) == returned


def test_an_operators_values_become_the_arguments_of_its_function():
    values = ("s", None, ["a", "b"], [1, 2], 0.5, True, 3)
    named = binder(*OPERATORS["attention"])("q", "k", "v", *values)
    assert list(named) == list(OPERATORS["attention"][1].arguments)
    found = [named[one] for one in ("score", "params", "causal", "window_size", "cache_seqlens")]
    assert found == ["s", {"a": 1, "b": 2}, True, (3, -1), None]
    assert binder(*OPERATORS["attention"])("q", "k", "v")["params"] is None
    cached = binder(*OPERATORS["flash_attn_with_kvcache"])
    pairs = {(): None, (7,): 7, (None, 9): 9, (7, 9): 7}
    assert {one: cached(*"qkv", *one)["cache_seqlens"] for one in pairs} == pairs


@each_function
def test_operators_take_every_argument_of_their_function(name):
    function = FUNCTIONS[name]
    if not function.operators:
        return
    taken = {one for operator in function.operators for one in operator.arguments}
    uses = ("passed", "gradients")
    passed = {one.name for one in for_torch(function).arguments if one.use in uses}
    assert taken == passed - {function.flag}


def test_the_options_of_the_xla_call_are_those_of_the_operator():
    tree = ast.parse((PACKAGE / "_jax.py").read_text())
    (options,) = (one for one in tree.body if getattr(one, "name", None) == "_Options")
    fields = [one.target.id for one in options.body if isinstance(one, ast.AnnAssign)]
    names = [name for _, name, _ in arguments_of_schema("flash_attn")][3:]
    expected = [name for name in names if name not in ("alibi_slopes", "learnable_sink")]
    expressions = [one.name for one in EXPRESSIONS]
    assert fields == [*expected, *expressions, "dropout_p"]
    attend = [one.arg for one in definitions("_jax.py")["attend"].args.args]
    beside = ["sink", "dropout_p", "state"]
    assert attend == ["arrays", *expected, "return_lse", *expressions, *beside]
    (call,) = (
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "call"
    )
    assert {one.arg for one in call.keywords} == {*expected, *expressions, "sink", "dropout_p"}
