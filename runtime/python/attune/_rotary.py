"""Rotary position embedding of queries and keys that are in no cache yet, over the C ABI."""

from __future__ import annotations

from . import _attune
from ._arguments import Array
from ._functions import documented


@documented
def apply_rotary(
    q: Array,
    k: Array | None,
    rotary_cos: Array,
    rotary_sin: Array,
    *,
    positions: Array | None = None,
    seqlen_offsets: Array | None = None,
    rotary_interleaved: bool = True,
) -> None:
    _attune.rotary(q, k, rotary_cos, rotary_sin, positions, seqlen_offsets, rotary_interleaved)
