"""What the arguments of every function share: their types, and the state of dropout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

Array = TypeVar("Array")  # torch.Tensor, cupy.ndarray, jax.Array or numpy.ndarray


class GradientWanted(NotImplementedError):
    """A tensor requires a gradient: functions that have one go on as operators that PyTorch differentiates."""


class Pair(Protocol):
    """Two integers: a tuple, a list or an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def refuse_together(given: Mapping[str, Any], without: str) -> None:
    """Throws where one of these arguments is given, of a call that `without` says."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given {without}")


#: What arguments belong to calls of another kind.
OF_RAGGED = "without cu_seqlens_q, which makes a batch ragged"
OF_CACHE = "without cache_seqlens, which makes k and v a cache"
NOT_OF_CACHE = "with cache_seqlens, which says how many keys a cache has"


def differentiable(name: str, *arguments: Any, **options: Any) -> Any:
    """The same call as an operator that PyTorch differentiates."""
    from . import torch

    return getattr(torch, name)(*arguments, **options)


def dropout_state(dropout_p: float, rng_state: Any, like: Any) -> Any:
    """Seed and offset of a call with dropout: those given, else of a PyTorch tensor two of its generator's.

    They are drawn on the device, so that a CUDA graph draws others in each replay.
    """
    if dropout_p == 0 or rng_state is not None:
        return rng_state
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(like, torch.Tensor):
        return None
    return torch.randint(2**44, (2,), dtype=torch.int64, device=like.device)
