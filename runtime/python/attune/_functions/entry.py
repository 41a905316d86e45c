"""What an entry of the list says, and the text that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

#: The default of an argument that has none.
REQUIRED: Final = object()

#: The type of an argument, and what it is in the schema of an operator.
_SCHEMA_TYPES = {
    "Array": "Tensor",
    "Array | None": "Tensor?",
    "bool": "bool",
    "bool | None": "bool?",
    "float": "float",
    "float | None": "float?",
    "int": "int",
    "int | None": "int?",
}


class Argument(NamedTuple):
    """An argument of a function.

    Attributes:
        name: Its name.
        type: Its annotation; Array is the array of any framework, in attune.torch a torch.Tensor.
        doc: Its lines in the documentation; empty where the function's closing words say whose they are.
        default: Its default, or REQUIRED.
        use: "passed" to the binding, or "gradients" where only they depend on it.
        by_name: Whether it is taken by name alone.
        in_torch: Whether attune.torch has it.
        schema: Its types and names in an operator, where they do not follow; more than one where
            an operator takes it in parts.
        whole: What makes its value of those parts.
    """

    name: str
    type: str
    doc: str
    default: Any = REQUIRED
    use: str = "passed"
    by_name: bool = False
    in_torch: bool = True
    schema: tuple[str, ...] = ()
    whole: Callable[..., Any] | None = None


class Operator(NamedTuple):
    """A custom operator of PyTorch that serves a function of attune.torch.

    Attributes:
        name: Its name, in the namespace attune.
        arguments: The function's arguments that it takes, in the operator's own order. Exported
            programs hold calls by it: it only grows, at its end.
        results: What it returns, as a schema says it.
        required: Arguments that the function may leave out and the operator may not.
        written: Arrays that it writes in place.
    """

    name: str
    arguments: tuple[str, ...]
    results: str = "(Tensor out, Tensor softmax_lse)"
    required: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


class Function(NamedTuple):
    """A function of the package.

    Attributes:
        name: Its name, in attune and in attune.torch.
        module: The module of both that has it.
        binding: The function of attune._attune that it calls, with the arguments that are passed on,
            in their order; empty where it chooses among several.
        summary: The first line of its documentation.
        arguments: Its arguments, in order.
        result: The annotation of what it returns.
        operators: Those that serve it in attune.torch; none where another function's do.
        flag: The argument that adds to the result, if there is one.
        flagged: The annotation of the result with it.
        details: Paragraphs of its documentation after the summary.
        returns: What it returns, in its documentation.
        raises: What it raises, and when.
        closing: Paragraphs at the end.
        torch_note: A line of its documentation for attune.torch alone.
    """

    name: str
    module: str
    binding: str
    summary: str
    arguments: tuple[Argument, ...]
    result: str
    operators: tuple[Operator, ...] = ()
    flag: str = ""
    flagged: str = ""
    details: str = ""
    returns: str = ""
    raises: tuple[tuple[str, str], ...] = ()
    closing: str = ""
    torch_note: str = ""

    def argument(self, name: str) -> Argument:
        return next(one for one in self.arguments if one.name == name)


def for_torch(function: Function) -> Function:
    """The function as attune.torch has it: without the arguments that are not there."""
    arguments = tuple(one for one in function.arguments if one.in_torch)
    summary = (
        f"attune.{function.name} of PyTorch tensors, through an operator that torch.compile takes."
    )
    note = "The tensors are on a CUDA device"
    note += "." if function.result == "None" else ", and the result is new memory."
    note = "\n".join(filter(None, (note, function.torch_note)))
    details = "\n\n".join(filter(None, (function.summary, function.details, note)))
    return function._replace(summary=summary, arguments=arguments, details=details)


def documentation(function: Function) -> str:
    """The function's docstring."""
    sections = [function.summary]
    if function.details:
        sections.append(function.details)
    described = ((one.name, one.doc) for one in function.arguments if one.doc)
    sections.append("Args:\n" + _described(described))
    if function.returns:
        sections.append("Returns:\n" + _indented(function.returns, "    ", "    "))
    if function.raises:
        sections.append("Raises:\n" + _described(function.raises))
    if function.closing:
        sections.append(function.closing)
    return "\n\n".join(sections) + "\n"


def _described(entries: Iterable[tuple[str, str]]) -> str:
    return "\n".join(_indented(f"{name}: {text}", "    ", "        ") for name, text in entries)


def _indented(text: str, first: str, others: str) -> str:
    return first + f"\n{others}".join(text.split("\n"))


class Operand(NamedTuple):
    """What an operator takes: an argument of its function, or a part of one.

    Attributes:
        type: Its type, as a schema says it.
        name: Its name.
        default: Its default, or REQUIRED.
        argument: The function's argument.
    """

    type: str
    name: str
    default: Any
    argument: Argument


def operands(function: Function, operator: Operator) -> Iterator[Operand]:
    """What the operator takes, in order."""
    for name in operator.arguments:
        argument = function.argument(name)
        parts = argument.schema or (f"{_SCHEMA_TYPES[argument.type]} {name}",)
        default = argument.default
        defaults = default if isinstance(default, tuple) else (default,) * len(parts)
        for part, one in zip(parts, defaults):
            type_, part_name = part.split()
            if name in operator.required:
                type_, one = type_.replace("?", ""), REQUIRED
            if name in operator.written:
                alias = "ab"[operator.written.index(name)]
                type_ = type_.replace("Tensor", f"Tensor({alias}!)")
            yield Operand(type_, part_name, one, argument)


def schema(function: Function, operator: Operator) -> str:
    """The operator as torch.library.Library.define takes it."""
    arguments = ", ".join(
        f"{one.type} {one.name}" + ("" if one.default is REQUIRED else f"={one.default}")
        for one in operands(function, operator)
    )
    return f"{operator.name}({arguments}) -> {operator.results}"


def binder(function: Function, operator: Operator) -> Callable[..., dict[str, Any]]:
    """What makes the function's arguments, by name, of the operator's, by position or by name.

    Written out, as dataclasses write theirs: each call of an operator takes it, and a loop over names costs 1 us.
    """
    taken = tuple(operands(function, operator))
    parameters = (
        one.name if one.default is REQUIRED else f"{one.name}={one.default!r}" for one in taken
    )
    makers: dict[str, Callable[..., Any]] = {}
    values = []
    for argument in map(function.argument, operator.arguments):
        value = ", ".join(one.name for one in taken if one.argument is argument)
        if argument.whole is not None:
            maker = f"make_{argument.name}"
            makers[maker] = argument.whole
            value = f"{maker}({value})"
        values.append(f"{argument.name!r}: {value}")
    bind: Callable[..., dict[str, Any]] = eval(
        f"lambda {', '.join(parameters)}: {{{', '.join(values)}}}", makers
    )
    return bind
