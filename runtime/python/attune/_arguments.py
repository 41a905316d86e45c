"""What the arguments of every function share: their types, and what no kernel serves."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

Array = TypeVar("Array")  # torch.Tensor, cupy.ndarray, jax.Array or numpy.ndarray


class GradientWanted(NotImplementedError):
    """A tensor requires a gradient: functions that have one go on as operators that PyTorch differentiates."""


class Pair(Protocol):
    """Two integers: a tuple, a list or an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def differentiable(name: str, *arguments: Any, **options: Any) -> Any:
    """The same call as an operator that PyTorch differentiates."""
    from . import torch

    return getattr(torch, name)(*arguments, **options)


def refuse_unserved(dropout_p: float, alibi_slopes: Any) -> None:
    if dropout_p != 0:
        raise NotImplementedError(f"dropout_p is {dropout_p}; only 0 is served yet")
    refuse_given(alibi_slopes=alibi_slopes)


def refuse_given(**unserved: Any) -> None:
    for name, value in unserved.items():
        if value is not None:
            kind = type(value)
            raise NotImplementedError(
                f"{name} is a {kind.__module__}.{kind.__qualname__}; only None is served yet"
            )
