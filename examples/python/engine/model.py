"""A Qwen3 with random weights, of NumPy arrays or PyTorch tensors: what both have is called alike.

All of it computes in float32 but attention, whose q, k and v are float16. So tokens that differ from those of eager
attention differ by attention alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

Array = Any


class Config(NamedTuple):
    """Sizes, called as in Qwen3's config.json; these are small enough for the emulator."""

    vocab_size: int = 256
    hidden_size: int = 64
    intermediate_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 128
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6


#: What attends: (layer, q, k, v), float16, (tokens, heads, head_dim) and not rotated yet, to an array like q.
Attend = Callable[[int, Array, Array, Array], Array]


class Model:
    """Qwen3's layers, and no more of it.

    Args:
        xp: numpy or torch.
        device: Where PyTorch's tensors are to be; NumPy has none.
        seed: Of the weights, which are the same for both packages.
    """

    def __init__(
        self, config: Config, xp: ModuleType, device: str | None = None, seed: int = 0
    ) -> None:
        self.config = config
        self.xp = xp
        self.device = device
        draw = np.random.default_rng(seed)

        def matrix(rows: int, columns: int) -> Array:
            values = draw.standard_normal((rows, columns), np.float32) * rows**-0.5
            return self.put(values)

        def gain(size: int, mean: float = 1) -> Array:
            return self.put(mean + draw.standard_normal(size, np.float32) / 10)

        hidden, inner = config.hidden_size, config.intermediate_size
        q_columns = config.num_attention_heads * config.head_dim
        kv_columns = config.num_key_value_heads * config.head_dim
        self.embedding = matrix(config.vocab_size, hidden) * config.vocab_size**0.5
        self.layers = [
            {
                "input_norm": gain(hidden),
                "q": matrix(hidden, q_columns),
                "k": matrix(hidden, kv_columns),
                "v": matrix(hidden, kv_columns),
                # Above 1, so that a query picks some keys out, and a wrong one among them shows.
                "q_norm": gain(config.head_dim, 1.5),
                "k_norm": gain(config.head_dim, 1.5),
                "o": matrix(q_columns, hidden),
                "inner_norm": gain(hidden),
                "gate": matrix(hidden, inner),
                "up": matrix(hidden, inner),
                "down": matrix(inner, hidden),
            }
            for _ in range(config.num_hidden_layers)
        ]
        self.norm = gain(hidden)
        self.head = matrix(hidden, config.vocab_size)
        frequencies = config.rope_theta ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        angles = np.arange(config.max_position_embeddings)[:, None] * frequencies
        self.cos = self.put(np.cos(angles).astype(np.float16))
        self.sin = self.put(np.sin(angles).astype(np.float16))

    def put(self, values: np.ndarray) -> Array:
        """An array on the model's device."""
        return values if self.xp is np else self.xp.asarray(values, device=self.device)

    def __call__(self, tokens: Array, attend: Attend, rows: Array) -> Array:
        """The logits after the tokens at `rows`: (len(rows), vocab_size)."""
        config = self.config
        x = self.embedding[tokens]
        for i, layer in enumerate(self.layers):
            h = self._normed(x, layer["input_norm"])
            q = self._heads(h @ layer["q"], config.num_attention_heads)
            k = self._heads(h @ layer["k"], config.num_key_value_heads)
            v = self._heads(h @ layer["v"], config.num_key_value_heads)
            q, k = self._normed(q, layer["q_norm"]), self._normed(k, layer["k_norm"])
            out = attend(i, *(self.xp.asarray(one, dtype=self.xp.float16) for one in (q, k, v)))
            x = x + self._float(out).reshape(len(tokens), -1) @ layer["o"]
            h = self._normed(x, layer["inner_norm"])
            gate = h @ layer["gate"]
            x = x + (gate / (1 + self.xp.exp(-gate)) * (h @ layer["up"])) @ layer["down"]
        return self._normed(x[rows], self.norm) @ self.head

    def eager(self, tokens: Array, rows: Array) -> Array:
        """The same with eager attention of one whole sequence, without a cache."""
        xp = self.xp
        positions = self.put(np.arange(len(tokens)))
        cos, sin = (self._float(one[positions])[:, None, :] for one in (self.cos, self.sin))
        seen = positions[:, None] >= positions

        def rotated(x: Array) -> Array:
            half = x.shape[-1] // 2
            x, y = self._float(x[..., :half]), self._float(x[..., half:])
            pairs = xp.concatenate((x * cos - y * sin, x * sin + y * cos), -1)
            return self._float(xp.asarray(pairs, dtype=xp.float16))

        def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
            heads, head_dim = k.shape[1:]
            grouped = rotated(q).reshape(len(tokens), heads, -1, head_dim)
            scores = xp.einsum("qhgd,khd->hgqk", grouped, rotated(k)) * head_dim**-0.5
            scores = xp.where(seen, scores, -np.inf)
            weights = xp.exp(scores - xp.amax(scores, -1, keepdims=True))
            weights = weights / weights.sum(-1, keepdims=True)
            return xp.einsum("hgqk,khd->qhgd", weights, self._float(v))

        return self(tokens, attend, rows)

    def _float(self, x: Array) -> Array:
        return self.xp.asarray(x, dtype=self.xp.float32)

    def _heads(self, x: Array, heads: int) -> Array:
        return x.reshape(len(x), heads, self.config.head_dim)

    def _normed(self, x: Array, gain: Array) -> Array:
        mean = (x * x).mean(-1, keepdims=True)
        return x * (mean + self.config.rms_norm_eps) ** -0.5 * gain
