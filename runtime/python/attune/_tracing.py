"""Python functions that are traced into the texts of expressions, and what a text reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

#: What an expression may name besides its parameters; a score s, too.
NAMES = ("q", "p", "k", "h", "hk", "b")

#: By what an array is counted where an index is one of these names alone.
_PER = {"h": "head", "hk": "kv_head", "b": "batch", "q": "query", "p": "position", "k": "position"}


class Traced:
    """An expression while a function is traced: arithmetic with it, comparisons, & | ~ and indexing make another."""

    __slots__ = ("text",)
    __array_ufunc__ = None  # NumPy scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def __bool__(self) -> bool:
        raise TypeError(
            "a traced expression has no truth value; use & | ~ for and, or, not, and attune.select for a choice"
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a traced expression is one number")

    def __add__(self, other: Any) -> Traced:
        return _joined(self, "+", other)

    def __radd__(self, other: Any) -> Traced:
        return _joined(other, "+", self)

    def __sub__(self, other: Any) -> Traced:
        return _joined(self, "-", other)

    def __rsub__(self, other: Any) -> Traced:
        return _joined(other, "-", self)

    def __mul__(self, other: Any) -> Traced:
        return _joined(self, "*", other)

    def __rmul__(self, other: Any) -> Traced:
        return _joined(other, "*", self)

    def __truediv__(self, other: Any) -> Traced:
        return _joined(self, "/", other)

    def __rtruediv__(self, other: Any) -> Traced:
        return _joined(other, "/", self)

    def __floordiv__(self, other: Any) -> Traced:
        return _joined(self, "//", other)

    def __rfloordiv__(self, other: Any) -> Traced:
        return _joined(other, "//", self)

    def __mod__(self, other: Any) -> Traced:
        return _joined(self, "%", other)

    def __rmod__(self, other: Any) -> Traced:
        return _joined(other, "%", self)

    def __neg__(self) -> Traced:
        return Traced(f"(-{self.text})")

    def __abs__(self) -> Traced:
        return Traced(f"abs({self.text})")

    def __lt__(self, other: Any) -> Traced:
        return _joined(self, "<", other)

    def __le__(self, other: Any) -> Traced:
        return _joined(self, "<=", other)

    def __gt__(self, other: Any) -> Traced:
        return _joined(self, ">", other)

    def __ge__(self, other: Any) -> Traced:
        return _joined(self, ">=", other)

    def __eq__(self, other: object) -> Traced:  # type: ignore[override]
        return _joined(self, "==", other)

    def __ne__(self, other: object) -> Traced:  # type: ignore[override]
        return _joined(self, "!=", other)

    def __and__(self, other: Any) -> Traced:
        return _joined(self, "and", other)

    def __rand__(self, other: Any) -> Traced:
        return _joined(other, "and", self)

    def __or__(self, other: Any) -> Traced:
        return _joined(self, "or", other)

    def __ror__(self, other: Any) -> Traced:
        return _joined(other, "or", self)

    def __invert__(self) -> Traced:
        return Traced(f"(not {self.text})")


class Looked:
    """A parameter while a function is traced: indexing it is a look-up."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, index: Any) -> Traced:
        indices = index if isinstance(index, tuple) else (index,)
        return Traced(f"{self.name}[{', '.join(_text(one) for one in indices)}]")


def _text(value: Any) -> str:
    if isinstance(value, Traced):
        return value.text
    if isinstance(value, bool):
        raise TypeError("expressions have no words for True and False; write the comparison")
    if isinstance(value, (int, float)):
        # NumPy's numbers are of classes of their own, whose texts are no numbers.
        plain = int(value) if isinstance(value, int) else float(value)
        return repr(plain) if plain >= 0 else f"(-{-plain!r})"
    if hasattr(value, "item"):
        return _text(value.item())
    raise TypeError(f"{value!r} is no number and no part of an expression")


def _joined(left: Any, sign: str, right: Any) -> Traced:
    return Traced(f"({_text(left)} {sign} {_text(right)})")


def _called(name: str, *operands: Any) -> Traced:
    return Traced(f"{name}({', '.join(map(_text, operands))})")


def minimum(x: Any, y: Any) -> Traced:
    """The smaller of two parts of a traced expression."""
    return _called("min", x, y)


def maximum(x: Any, y: Any) -> Traced:
    """The larger of two parts of a traced expression."""
    return _called("max", x, y)


def exp2(x: Any) -> Traced:
    """2 to the power of a part of a traced expression."""
    return _called("exp2", x)


def log2(x: Any) -> Traced:
    """The logarithm to base 2 of a part of a traced expression."""
    return _called("log2", x)


def tanh(x: Any) -> Traced:
    """The hyperbolic tangent of a part of a traced expression."""
    return _called("tanh", x)


def real(x: Any) -> Traced:
    """An integer of a traced expression as a real number, which products of large ones need."""
    return _called("real", x)


def select(condition: Any, yes: Any, no: Any) -> Traced:
    """`yes` where a condition of a traced expression holds, else `no`."""
    return _called("select", condition, yes, no)


def trace(function: Callable[..., Any], params: tuple[str, ...] = ()) -> str:
    """The text of what a function computes from its arguments, which are s, q, p, k, h, hk, b or parameters by name.

    Raises:
        TypeError: An argument of another name, or a result that is no expression.
    """
    given: list[Any] = []
    for name in inspect.signature(function).parameters:
        if name in (*NAMES, "s"):
            given.append(Traced(name))
        elif name in params:
            given.append(Looked(name))
        else:
            raise TypeError(
                f"{name} is no name of an expression: s, {', '.join(NAMES)}, or one of params"
            )
    return _text(function(*given))


def parameters_read(
    text: str, ranks: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, tuple[str | None, ...]], ...]:
    """Of the arrays of these names and ranks those that a text looks up, and by what each dimension is counted.

    That is what an index says that is a name alone, and None where no index of the dimension is one. Nothing where the
    text has its own `where`.
    """
    if re.search(r"(?<![A-Za-z0-9_])where(?![A-Za-z0-9_])", text):
        return ()
    found = []
    for name, rank in ranks:
        lookups = list(re.finditer(rf"(?<![A-Za-z0-9_]){re.escape(name)}\s*\[", text))
        if not lookups:
            continue
        counted: list[str | None] = [None] * rank
        for lookup in lookups:
            for i, index in enumerate(_indices(text, lookup.end())[:rank]):
                counted[i] = _PER.get(index, counted[i])
        found.append((name, tuple(counted)))
    return tuple(found)


def _indices(text: str, begin: int) -> list[str]:
    """The indices of a look-up, after its bracket."""
    depth, indices = 0, []
    for at in range(begin, len(text)):
        c = text[at]
        if depth == 0 and c in "]),":
            indices.append(text[begin:at].strip())
            begin = at + 1
            if c != ",":
                break
        depth += (c in "([") - (c in ")]")
    return indices
