"""What the functions make of their arguments before an operator takes them."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .._arguments import Pair


def require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__qualname__}; it must be a torch.Tensor")


def wants_gradient(*tensors: torch.Tensor) -> bool:
    """Whether what follows from these tensors is to be differentiated."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in tensors)


def refuse_gradients(what: str, *tensors: torch.Tensor) -> None:
    """Throws where the gradient of a call with this argument is wanted, for which there is no kernel."""
    if wants_gradient(*tensors):
        raise NotImplementedError(
            f"a tensor requires a gradient, which attention with {what} has not yet: "
            "call it under torch.no_grad(), or detach q, k and v"
        )


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
