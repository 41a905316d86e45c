"""Writes the type stubs of the package, from its list of functions, in place of those in a folder: stubs.py FOLDER

A function's result depends on whether it is asked for the log-sum-exp, which takes three overloads to say: here, for
type checkers and editors, and not in the modules themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

# The list is enough: the package itself needs its built module.
sys.modules["attune"] = ModuleType("attune")
sys.modules["attune"].__path__ = [str(Path(__file__).resolve().parent / "attune")]

from attune._functions import FUNCTIONS, REQUIRED, Argument, Function, for_torch
from attune._functions.entry import documentation

HEADER = "# Written by runtime/python/stubs.py from attune/_functions.\n"

#: What the bindings that attune/_expressions.py calls take after what those of the list of functions do.
EXPRESSIONS = ("score: str | None", "mask: str | None", "params: dict[str, Any]")

#: What explain and jit take of a problem.
_PROBLEM = """
    bf16: bool,
    sizes: tuple[int, ...],
    causal: bool,
    window_size: Pair,
    softcap: float,
    score: str | None,
    mask: str | None,
    params: list[tuple[str, bool, tuple[int, ...]]],
    arch: str | None,
    ordinal: int | None,
"""

#: What attune._attune has beside the bindings of the list.
OTHERS = f"""
def require_gradients(score: str | None, softcap: float) -> None: ...
def xla_prefill() -> Any: ...
def xla_backward() -> Any: ...
def explain({_PROBLEM}) -> dict[str, Any]: ...
def jit({_PROBLEM}) -> str: ...
def counters(emulator: bool | None) -> dict[str, Any]: ...
def finish() -> None: ...
def cache_root() -> str: ...
def cache_list() -> list[tuple[str, str, str, int, bool, str, str]]: ...
def cache_clear() -> int: ...
"""


def stubs() -> dict[Path, str]:
    """Every stub, by its path in the package."""
    written = {Path("_attune.pyi"): _bindings()}
    for module in sorted({one.module for one in FUNCTIONS.values()}):
        functions = [one for one in FUNCTIONS.values() if one.module == module]
        written[Path(f"{module}.pyi")] = _module(functions)
        written[Path("torch", f"{module}.pyi")] = _module(map(for_torch, functions), torch=True)
    return written


def annotation(type_: str, torch: bool) -> str:
    """The annotation of a value in attune, or in attune.torch."""
    return type_.replace("Array", "torch.Tensor") if torch else type_


def _module(functions: Iterable[Function], torch: bool = False) -> str:
    functions = tuple(functions)
    text = HEADER + "\n".join(_imports(functions, torch))
    for function in functions:
        text += "\n" + "".join(_declarations(function, torch))
    return text


def _imports(functions: Iterable[Function], torch: bool) -> Iterator[str]:
    """What the annotations of these functions take, section after section."""
    types = " ".join(two.type for one in functions for two in one.arguments)
    mapping = ["from collections.abc import Mapping"] if "Mapping" in types else []
    overloads = (
        ["from typing import Literal, overload"] if any(one.flag for one in functions) else []
    )
    if mapping or overloads:
        yield "\n".join([*mapping, *overloads]) + "\n"
    pair = ["Pair"] if "Pair" in types else []
    texts = "Expression" in types
    if torch:
        yield "import torch\n"
    own = pair if torch else ["Array", *pair]
    package = ".." if torch else "."
    imported = [f"from {package}_arguments import {', '.join(own)}"] if own else []
    if texts:
        imported.append(f"from {package}_texts import Expression")
    if imported:
        yield "\n".join(imported) + "\n"


def _declarations(function: Function, torch: bool) -> Iterator[str]:
    doc = "\n".join(f"    {line}".rstrip() for line in documentation(function).splitlines())
    doc = f'    """{doc.lstrip()}\n    """\n'
    arguments = [(one, annotation(one.type, torch)) for one in function.arguments]
    result, flagged = (annotation(one, torch) for one in (function.result, function.flagged))
    if not function.flag:
        yield _declaration(function.name, _parameters(arguments), result) + f"\n{doc}"
        return

    def flag_of(kind: str) -> list[tuple[Argument, str]]:
        return [(one, kind if one.name == function.flag else type_) for one, type_ in arguments]

    def overload(parameters: Iterator[str], result: str) -> str:
        return "@overload\n" + _declaration(function.name, parameters, result)

    yield overload(_parameters(flag_of("Literal[False]")), result) + f"\n{doc}"
    asked = [
        (one._replace(default=REQUIRED, by_name=True) if one.name == function.flag else one, type_)
        for one, type_ in flag_of("Literal[True]")
    ]
    yield overload(_parameters(asked), flagged) + " ...\n"
    yield overload(_parameters(arguments), f"{result} | {flagged}") + " ...\n"


def _parameters(arguments: Iterable[tuple[Argument, str]]) -> Iterator[str]:
    by_name = False
    for argument, type_ in arguments:
        if argument.by_name and not by_name:
            by_name = True
            yield "*"
        default = "" if argument.default is REQUIRED else f" = {argument.default}"
        yield f"{argument.name}: {type_}{default}"


def _declaration(name: str, parameters: Iterable[str], result: str) -> str:
    return "".join([f"def {name}(\n", *(f"    {one},\n" for one in parameters), f") -> {result}:"])


def _bindings() -> str:
    """What attune._attune takes: what a function passes on, in its order, by position."""
    text = HEADER + "from typing import Any\n\nfrom ._arguments import Pair\n\nversion: str\n\n"
    for function in FUNCTIONS.values():
        if not function.binding:
            continue
        passed = (one for one in function.arguments if one.use == "passed")
        parameters = [f"{one.name}: {_passed_type(one)}" for one in passed]
        result = "None" if function.result == "None" else "Any"
        text += _declaration(function.binding, parameters, result) + " ...\n"
        if function.binding in ("attention", "varlen", "decode"):
            expressed = [*parameters, *EXPRESSIONS]
            text += _declaration(f"expressed_{function.binding}", expressed, result) + " ...\n"
    return text + OTHERS


def _passed_type(argument: Argument) -> str:
    if "Mapping" in argument.type:
        return "dict[str, Any] | None"
    if "Expression" in argument.type:
        return argument.type.replace("Expression", "str")
    return "Any" if "Array" in argument.type else argument.type


if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    for stale in folder.rglob("*.pyi"):  # a module may have had another name
        stale.unlink()
    for path, text in stubs().items():
        written = folder / path
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(text, encoding="utf-8")
