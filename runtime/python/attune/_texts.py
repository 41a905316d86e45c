"""Expressions as texts: what a caller wrote, a text or a Python function that is traced into one, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._tracing import counted_by, declared_in, lookups_in, trace

_DTYPES = {"float32": "fp32", "int32": "int32"}

Expression = str | Callable[..., Any]


def arrays_of(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters by their names, which kernels' own checks see to."""
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params is a {type(params).__name__}; it must map names to arrays, as {{'slope': array}}"
        )
    for name in params:
        if not isinstance(name, str):
            raise TypeError(f"params has the name {name!r}, a {type(name).__name__}; it must be a text")
    return dict(params)


def shapes_of(params: Mapping[str, Any]) -> list[tuple[str, bool, tuple[int, ...]]]:
    """Name, whether its numbers are real, and shape of each parameter."""
    return [
        (name, _dtype_of(name, array) == "fp32", tuple(int(n) for n in array.shape))
        for name, array in params.items()
    ]


def text_of(expression: Expression | None, params: Mapping[str, Any]) -> str | None:
    """A text as it is, a function traced."""
    if expression is None or isinstance(expression, str):
        return expression
    if not callable(expression):
        raise TypeError(
            f"a score or mask is a {type(expression).__name__}; it must be a text or a function. An "
            "array goes into params: mask='shown[q, k] == 1', params={'shown': array}"
        )
    return trace(expression, tuple(params))


def complete(
    score: Expression | None, mask: Expression | None, params: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """The texts of both, each with a `where` for the parameters that it reads: the same in both."""
    texts = (text_of(score, params), text_of(mask, params))
    own = [None if text is None else declared_in(text) for text in texts]
    said = {name: type for one in own for name, type in (one or {}).items()}
    completed = []
    for text, declared in zip(texts, own):
        if text is not None and declared is None:
            read = [name for name in params if lookups_in(text, name)]
            where = [f"{name}: {said.get(name) or _declaration(name, params, texts)}" for name in read]
            text = f"{text} where {', '.join(where)}" if where else text
        completed.append(text)
    return completed[0], completed[1]


def _declaration(name: str, params: Mapping[str, Any], texts: tuple[str | None, ...]) -> str:
    """What `where` says of an array that these texts look up."""
    array = params[name]
    dtype = _dtype_of(name, array)
    lookups = [one for text in texts if text is not None for one in lookups_in(text, name)]
    counted = counted_by(name, lookups, len(array.shape))
    return f"{dtype}[{', '.join(one or str(int(n)) for one, n in zip(counted, array.shape))}]"


def _dtype_of(name: str, array: Any) -> str:
    if not hasattr(array, "shape"):
        raise TypeError(f"params[{name!r}] is a {type(array).__name__}; it must be an array")
    dtype = _DTYPES.get(str(array.dtype).rpartition(".")[2])
    if dtype is None:
        raise TypeError(f"params[{name!r}] has dtype {array.dtype}; it must be float32 or int32")
    return dtype
