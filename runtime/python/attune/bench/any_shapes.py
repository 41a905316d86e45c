"""Shapes that nobody tuned for, drawn from a seed."""

from __future__ import annotations

import random
from typing import Literal

#: Query heads and key/value heads of models that are in use.
_HEADS = (
    (12, 12),  # GPT-2
    (14, 2),  # Qwen2.5 0.5B
    (16, 8),  # Qwen3 0.6B
    (16, 16),  # Gemma 7B
    (20, 20),  # Whisper large
    (24, 8),  # Llama 3.2 3B
    (28, 4),  # Qwen2.5 7B
    (32, 4),  # Qwen3 30B-A3B
    (32, 8),  # Llama 3 8B
    (32, 32),  # Llama 2 7B
    (40, 8),  # Qwen3 14B
    (48, 8),  # Mixtral 8x22B
    (64, 8),  # Llama 3 70B
    (71, 1),  # Falcon 7B
)
_MOST_BYTES = 4 << 30  # of keys and values, as queries, answers and references need as much again
_MOST_FLOP = 8e12  # of a prefill, or its reference in float64 takes too long

Kind = Literal["prefill", "decode", "paged"]


def names(kind: Kind, seed: int, count: int = 60) -> list[str]:
    """Names of `count` different cases.

    Head dimensions are 32 to 256 in eights, heads those of real models, batches (1 to 256) and
    lengths log-uniform as far as memory and time allow.
    """
    draws = random.Random(f"{kind} {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        name = _drawn(kind, draws)
        if name is not None:
            found[name] = None
    return list(found)


def _drawn(kind: Kind, draws: random.Random) -> str | None:
    """A case's name; None where it would take too much memory or time."""
    head_dim = 8 * draws.randint(4, 32)
    heads, heads_kv = draws.choice(_HEADS)
    batch = _log_uniform(draws, 1, 256)
    length = _log_uniform(draws, *((128, 16384) if kind == "prefill" else (256, 131072)))
    page = draws.choice((1, 16, 64, 128, 256))
    if kind == "paged":
        length = max(1, length // page) * page
    rows = heads if kind == "prefill" else 2 * heads_kv
    if 2 * batch * length * rows * head_dim > _MOST_BYTES:
        return None
    shape = f"d{head_dim} b{batch} hq{heads} hk{heads_kv} L{length}"
    if kind == "decode":
        return shape
    if kind == "paged":
        return f"{shape} page{page}"
    if 4.0 * batch * heads * length * length * head_dim > _MOST_FLOP:
        return None
    return f"{shape} {draws.choice(('full', 'causal'))}"


def _log_uniform(draws: random.Random, least: int, most: int) -> int:
    return round(least * (most / least) ** draws.random())
