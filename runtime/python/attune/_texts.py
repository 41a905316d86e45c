"""Expressions as texts: what a caller wrote, a text or a Python function that is traced into one, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._tracing import parameters_read, trace

_DTYPES = {"float32": "fp32", "int32": "int32"}

Expression = str | Callable[..., Any]


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


def complete(expression: Expression | None, params: Mapping[str, Any]) -> str | None:
    """The text with a `where` for each parameter that it reads."""
    text = text_of(expression, params)
    if text is None:
        return None
    declared = []
    # What is no array the binding names.
    ranks = tuple((name, len(one.shape)) for name, one in params.items() if hasattr(one, "shape"))
    for name, counted in parameters_read(text, ranks):
        array = params[name]
        dtype = _DTYPES.get(str(array.dtype).rpartition(".")[2])
        if dtype is None:
            raise TypeError(
                f"params[{name!r}] has dtype {array.dtype}; it must be float32 or int32"
            )
        per = [one or str(int(array.shape[i])) for i, one in enumerate(counted)]
        declared.append(f"{name}: {dtype}[{', '.join(per)}]")
    return f"{text} where {', '.join(declared)}" if declared else text
