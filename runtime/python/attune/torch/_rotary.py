"""Rotary position embedding of queries and keys that are in no cache yet, through an operator."""

from __future__ import annotations

import torch

from .._functions import documented_for_torch
from . import _ops
from ._arguments import require_tensor


@documented_for_torch
def apply_rotary(
    q: torch.Tensor,
    k: torch.Tensor | None,
    rotary_cos: torch.Tensor,
    rotary_sin: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,
    seqlen_offsets: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
) -> None:
    require_tensor("q", q)
    if k is not None:
        require_tensor("k", k)
    require_tensor("rotary_cos", rotary_cos)
    require_tensor("rotary_sin", rotary_sin)
    _ops.rotary(q, k, rotary_cos, rotary_sin, positions, seqlen_offsets, rotary_interleaved)
