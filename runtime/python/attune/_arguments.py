"""What the arguments of every function share: their types, and the state of dropout."""

from __future__ import annotations

import importlib
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


def require_one_kind(
    cache_seqlens: Any,
    cu_seqlens_q: Any,
    *,
    of_cache: Mapping[str, Any],
    of_keys: Mapping[str, Any],
    of_ragged: Mapping[str, Any],
) -> None:
    """Throws where arguments are given that belong to calls of different kinds: dense, ragged, to a cache.

    `of_cache` are those of a cache alone, `of_keys` those of a ragged batch whose keys are in none, `of_ragged` the
    others that a dense batch has not.
    """
    if cache_seqlens is not None:
        _refuse(of_keys, "with cache_seqlens, which says how many keys a cache has")
        return
    _refuse(of_cache, "without cache_seqlens, which makes k and v a cache")
    if cu_seqlens_q is None:
        _refuse({**of_keys, **of_ragged}, "without cu_seqlens_q, which makes a batch ragged")


def _refuse(given: Mapping[str, Any], where: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given {where}")


def dropout_state(dropout_p: float, rng_state: Any, like: Any) -> Any:
    """Seed and offset of a call with dropout: those given, of a JAX array what a key draws that is given in their place,
    else of a PyTorch tensor two of its generator's.

    They are drawn on the device, so that a CUDA graph draws others in each replay.
    """
    if dropout_p == 0:
        return rng_state
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        if rng_state is not None:
            return rng_state
        return torch.randint(2**44, (2,), dtype=torch.int64, device=like.device)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(like, jax.Array):
        return importlib.import_module(f"{__package__}._jax").dropout_state(rng_state, dropout_p)
    return rng_state
