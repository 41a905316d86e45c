"""Python functions that are traced into the texts of expressions, and what a text reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: What an expression may name besides its parameters; a score s, too.
NAMES = ("q", "p", "k", "h", "hk", "b")

#: By what an array is counted where an index is one of these names alone.
_PER = {"h": "head", "hk": "kv_head", "b": "batch", "q": "query", "p": "position", "k": "position"}


#: How tightly operators bind their operands, as the parser of texts reads them: tighter the higher.
_BY_STRENGTH = (
    ("or",),
    ("and",),
    ("not ",),
    ("<", "<=", ">", ">=", "==", "!="),
    ("+", "-"),
    ("*", "/", "//", "%"),
)
_STRENGTH = {sign: strength for strength, signs in enumerate(_BY_STRENGTH) for sign in signs}
_MINUS = len(_BY_STRENGTH)
_WORD = _MINUS + 1


class Traced:
    """An expression while a function is traced: arithmetic with it, comparisons, & | ~ and indexing make another."""

    __slots__ = ("strength", "text")
    __array_ufunc__ = None  # NumPy scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, strength: int = _WORD) -> None:
        self.text = text
        self.strength = strength  # of its outermost operator

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
        return _before("-", _MINUS, self)

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
        return _before("not ", _STRENGTH["not "], self)


class Looked:
    """A parameter while a function is traced: indexing it is a look-up."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, index: Any) -> Traced:
        indices = index if isinstance(index, tuple) else (index,)
        return Traced(f"{self.name}[{_list(indices)}]")


def _traced(value: Any) -> Traced:
    if isinstance(value, Traced):
        return value
    if isinstance(value, bool):
        raise TypeError("expressions have no words for True and False; write the comparison")
    if isinstance(value, (int, float)):
        # NumPy's numbers are of classes of their own, whose texts are no numbers.
        plain = int(value) if isinstance(value, int) else float(value)
        if plain != plain:
            raise TypeError("expressions have no word for nan")
        return Traced(repr(plain), _MINUS if plain < 0 else _WORD)
    if hasattr(value, "item"):
        return _traced(value.item())
    if isinstance(value, Looked):
        raise TypeError(f"{value.name} is an array; an expression looks it up by indices, as {value.name}[h]")
    raise TypeError(f"{value!r} is no number and no part of an expression")


def _operand(value: Any, strength: int) -> str:
    """In parentheses where an operator of that strength before or behind it would take a part of it."""
    traced = _traced(value)
    return traced.text if traced.strength >= strength else f"({traced.text})"


def _joined(left: Any, sign: str, right: Any) -> Traced:
    strength = _STRENGTH[sign]
    # Operators of one strength are read from the left; comparisons do not follow each other.
    of_left = strength + (strength == _STRENGTH["<"])
    return Traced(f"{_operand(left, of_left)} {sign} {_operand(right, strength + 1)}", strength)


def _before(sign: str, strength: int, operand: Any) -> Traced:
    return Traced(f"{sign}{_operand(operand, strength)}", strength)


def _list(values: Iterable[Any]) -> str:
    return ", ".join(_traced(one).text for one in values)


def _called(name: str, *operands: Any) -> Traced:
    return Traced(f"{name}({_list(operands)})")


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
    return _traced(function(*given)).text


def declared_in(text: str) -> dict[str, str] | None:
    """What a text's own `where` says of each parameter, "fp32[head]"; None where it has none."""
    where = re.search(r"(?<![A-Za-z0-9_])where(?![A-Za-z0-9_])", text)
    if where is None:
        return None
    return dict(re.findall(r"(\w+)\s*:\s*(\w+\s*\[[^\]]*\])", text[where.end() :]))


def lookups_in(text: str, name: str) -> list[list[str]]:
    """The indices of each look-up of a parameter."""
    found = re.finditer(rf"(?<![A-Za-z0-9_]){re.escape(name)}\s*\[", text)
    return [_indices(text, one.end()) for one in found]


def counted_by(name: str, lookups: list[list[str]], rank: int) -> list[str | None]:
    """By what each dimension of a parameter is counted.

    That is what an index says that is a name alone, and None where no index of the dimension is one.

    Raises:
        ValueError: Two such indices of one dimension are counted by different things.
    """
    counted: list[str | None] = []
    for i in range(rank):
        names = {one[i]: _PER[one[i]] for one in lookups if i < len(one) and one[i] in _PER}
        kinds = set(names.values())
        if kinds == {"query", "position"}:
            kinds = {"position"}  # there are no fewer keys than queries wherever a mask hides the future
        if len(kinds) > 1:
            said = " and ".join(f"by {index} ({kind})" for index, kind in sorted(names.items()))
            raise ValueError(
                f"params[{name!r}] is indexed {said} in its dimension {i}, which one of them counts; "
                f"write another as a sum, {min(names)} + 0, or say {name}: ...[...] after `where`"
            )
        counted.append(kinds.pop() if kinds else None)
    return counted


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
