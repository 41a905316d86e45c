"""What the functions make of their arguments before an operator takes them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from .. import _tracing
from .._arguments import Pair
from .._texts import Expression, arrays_of, text_of

# torch.compile calls it while it traces, as it takes no tensors.
torch.compiler.assume_constant_result(_tracing.trace)


def require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__qualname__}; it must be a torch.Tensor")


def wants_gradient(*tensors: torch.Tensor | None) -> bool:
    """Whether what follows from these tensors is to be differentiated."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def refuse_gradient_of(name: str, value: Any) -> None:
    """Throws where the gradient of an argument is wanted that has none, and where it is something else than a tensor."""
    if value is None:
        return
    require_tensor(name, value)
    if wants_gradient(value):
        raise NotImplementedError(f"{name} requires a gradient, which it has not; detach it")


def refuse_gradients(what: str) -> None:
    """Throws, as the gradient of a call with this is wanted, for which there is no kernel."""
    raise NotImplementedError(
        f"a tensor requires a gradient, which attention with {what} has not: "
        "call it under torch.no_grad(), or detach q, k and v"
    )


def is_differentiated(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: torch.Tensor | None,
    learnable_sink: torch.Tensor | None,
    softcap: float,
) -> bool:
    """Whether a call's gradients are wanted; throws where it has none."""
    refuse_gradient_of("alibi_slopes", alibi_slopes)
    if learnable_sink is not None:
        require_tensor("learnable_sink", learnable_sink)
    wanted = wants_gradient(q, k, v, learnable_sink)
    if wanted and alibi_slopes is not None and softcap != 0:
        refuse_gradients("alibi_slopes and a softcap")
    return wanted


def texts_and_arrays(
    score: Expression | None, mask: Expression | None, params: Mapping[str, torch.Tensor] | None
) -> tuple[str | None, str | None, list[str] | None, list[torch.Tensor] | None]:
    """What the operators take of expressions: texts, and the names and arrays of parameters."""
    arrays = arrays_of(params)
    for name, array in arrays.items():
        refuse_gradient_of(f"params[{name!r}]", array)
    named = (list(arrays), list(arrays.values())) if arrays else (None, None)
    return text_of(score, arrays), text_of(mask, arrays), *named


def unpack(name: str, packed: torch.Tensor, parts: int, rows: str) -> tuple[torch.Tensor, ...]:
    """Views of the parts of (*rows, parts, heads, head_dim)."""
    require_tensor(name, packed)
    if packed.dim() != rows.count(",") + 4 or packed.shape[-3] != parts:
        raise ValueError(
            f"{name} has shape {tuple(packed.shape)}; it must be ({rows}, {parts}, heads, head_dim)"
        )
    return packed.unbind(-3)


def window(window_size: Pair) -> tuple[int, int]:
    """What the operators take: two of Python's own integers."""
    if len(window_size) != 2:
        raise TypeError(f"window_size is {window_size}; it must be (left, right), two integers")
    left, right = window_size[0], window_size[1]
    if not isinstance(left, int):
        left = operator.index(left)
    if not isinstance(right, int):
        right = operator.index(right)
    return left, right
