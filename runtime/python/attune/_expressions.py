"""Attention whose scores and masks are expressions: texts, or Python functions that are traced into them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _attune
from ._arguments import Array, GradientWanted, Pair

#: What an expression may name besides its parameters; a score s, too.
NAMES = ("q", "p", "k", "h", "hk", "b")

#: By what an array is counted where an index is one of these names alone.
_PER = {"h": "head", "hk": "kv_head", "b": "batch", "q": "query", "p": "position", "k": "position"}

_DTYPES = {"float32": "fp32", "int32": "int32"}

Expression = str | Callable[..., Any]


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
    if isinstance(value, int):
        return str(value) if value >= 0 else f"(-{-value})"
    if isinstance(value, float):
        return repr(value) if value >= 0 else f"(-{-value!r})"
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


def select(condition: Any, yes: Any, no: Any) -> Traced:
    """`yes` where a condition of a traced expression holds, else `no`."""
    return _called("select", condition, yes, no)


def trace(function: Callable[..., Any], params: Mapping[str, Any] | None = None) -> str:
    """The text of what a function computes from its arguments, which are s, q, p, k, h, hk, b or parameters by name.

    Raises:
        TypeError: An argument of another name, or a result that is no expression.
    """
    given: list[Any] = []
    for name in inspect.signature(function).parameters:
        if name in (*NAMES, "s"):
            given.append(Traced(name))
        elif params is not None and name in params:
            given.append(Looked(name))
        else:
            raise TypeError(
                f"{name} is no name of an expression: s, {', '.join(NAMES)}, or one of params"
            )
    return _text(function(*given))


def _dimensions(text: str, name: str, shape: tuple[int, ...]) -> list[str]:
    """By what each dimension of a parameter is counted: what an index that is a name alone says, else its extent."""
    counted = [str(extent) for extent in shape]
    for found in re.finditer(rf"(?<![A-Za-z0-9_]){re.escape(name)}\s*\[", text):
        depth, begin, at, indices = 0, found.end(), found.end(), []
        while at < len(text):
            c = text[at]
            if c in "])" and depth == 0 or c == "," and depth == 0:
                indices.append(text[begin:at].strip())
                begin = at + 1
                if c != ",":
                    break
            depth += (c in "([") - (c in ")]")
            at += 1
        for i, index in enumerate(indices[: len(counted)]):
            if index in _PER:
                counted[i] = _PER[index]
    return counted


def _complete(expression: Expression | None, params: Mapping[str, Any]) -> str | None:
    """The text with a `where` for each parameter that it reads."""
    if expression is None:
        return None
    text = expression if isinstance(expression, str) else trace(expression, params)
    if re.search(r"(?<![A-Za-z0-9_])where(?![A-Za-z0-9_])", text):
        return text
    declared = []
    for name, array in params.items():
        if not re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}\s*\[", text):
            continue
        dtype = _DTYPES.get(str(array.dtype).rpartition(".")[2])
        if dtype is None:
            raise TypeError(
                f"params[{name!r}] has dtype {array.dtype}; it must be float32 or int32"
            )
        dimensions = ", ".join(_dimensions(text, name, tuple(array.shape)))
        declared.append(f"{name}: {dtype}[{dimensions}]")
    return f"{text} where {', '.join(declared)}" if declared else text


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Any] | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Attention whose scores and masks are expressions: softmax(score(softmax_scale * q @ k.T), mask) @ v.

    A new expression is a kernel of its own, which is compiled at the first call and kept on disk.

        attune.attention(q, k, v, score="s + slope[h] * (k - p)", mask="k <= p", params={"slope": slopes})
        attune.attention(q, k, v, mask=lambda k, p, b, doc: (k <= p) & (doc[b, p] == doc[b, k]), params={"doc": ids})

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, as flash_attn_func takes it.
        k: (batch, seqlen_k, heads_kv, head_dim).
        v: As k.
        score: What a score becomes, a text or a function: of s, the scaled score; q, the query's row; p, its position
            among the keys, q + seqlen_k - seqlen_q; k, the key's position; h and hk, the heads of q and of k; b, the
            sequence; and of parameters, by their names. Arithmetic + - * / // %, comparisons, and, or, not, min, max,
            abs, exp2, log2, tanh, select(condition, yes, no). A function takes some of these by name and writes
            & | ~ for and, or, not; attune.select and others are its functions.
        mask: Which keys a query sees of those that causal and window_size leave it, without s.
        params: Arrays that expressions look up by name, float32 or int32, contiguous, on q's device. A dimension
            that is indexed by a name alone is counted by it (h: heads_q, hk: heads_kv, b: batch, q: at least seqlen_q,
            p and k: at least seqlen_k); others have the extent that the array has. An index beyond an extent counts as
            the nearest inside.
        softmax_scale: As flash_attn_func takes it, and so are the three that follow.
        causal: The mask up to the query's own position.
        window_size: (left, right).
        softcap: A cap on scores, before the expression.
        return_lse: Also return the log-sum-exp, (batch, heads_q, seqlen_q).

    Returns:
        An array like q, or a tuple (out, lse). A query that sees no key gives zeros, and an lse of -inf.

    Raises:
        ValueError: What is wrong in an expression, with its column; an array that is missing or has another shape.
        TypeError: An array of another dtype or framework.
        NotImplementedError: A tensor that requires a gradient, as kernels with expressions have no backward pass;
            a JAX array; what no kernel serves.
    """
    arrays = dict(params or {})
    try:
        result = _attune.expressed_attention(
            q,
            k,
            v,
            0.0,
            softmax_scale,
            causal,
            window_size,
            softcap,
            return_lse,
            _complete(score, arrays),
            _complete(mask, arrays),
            arrays,
        )
    except GradientWanted:
        raise NotImplementedError(
            "a tensor requires a gradient; attention with expressions has no backward pass yet: "
            "call it under torch.no_grad(), or detach q, k and v"
        ) from None
    return (result[0], result[1]) if return_lse else result
