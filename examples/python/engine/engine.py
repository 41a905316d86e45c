"""Steps on the device: the chunks of a step as one ragged batch, whose attention is Attune's.

Each layer does what nano-vllm's attention layer does: it stores the new keys and values by slots, then attends to the
cache, flash_attn_with_kvcache where each sequence has one query, flash_attn_varlen_func where some have chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

import numpy as np

from .model import Array, Model
from .pages import Pages
from .scheduler import Chunk, Request, Scheduler


class Batch(NamedTuple):
    """A step's tokens, one sequence after the other, as int32 arrays on the device.

    Attributes:
        tokens: (tokens,).
        positions: (tokens,): each one's place in its sequence.
        slots: (tokens,): where in the cache its key and value go; -1: nowhere.
        starts: (sequences + 1,): where the tokens of each sequence begin.
        lengths: (sequences,): keys of each, the step's own among them.
        block_table: (sequences, pages of the longest one).
        most: Tokens of a sequence, at most; with 1 the step runs as decoding.
        longest: Keys of a sequence, at most.
    """

    tokens: Array
    positions: Array
    slots: Array
    starts: Array
    lengths: Array
    block_table: Array
    most: int
    longest: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self[:-2]


@dataclass
class Counts:
    """What an engine did.

    Attributes:
        steps: All of them.
        mixed: Those with decoding requests beside chunks of prompts.
        decode: Those with decoding requests alone.
        waiting: Requests that waited while a step ran, at most.
    """

    steps: int = 0
    mixed: int = 0
    decode: int = 0
    waiting: int = 0


class Engine:
    """A model, its paged K/V cache, and the requests that it serves.

    Args:
        model: Of PyTorch tensors, or of NumPy arrays, which run in the emulator.
        pages: In the cache, each of page_size tokens; of 1 the block table is one of tokens, as LightLLM's is.
        max_requests, max_tokens: Of one step.
        graphs: Whether steps that only decode are replays of CUDA graphs. Needs a GPU.
    """

    def __init__(
        self,
        model: Model,
        pages: int,
        page_size: int,
        max_requests: int,
        max_tokens: int,
        graphs: bool,
    ) -> None:
        config = model.config
        self.model = model
        self.scheduler = Scheduler(Pages(pages, page_size), max_requests, max_tokens)
        self.counts = Counts()
        heads = (config.num_key_value_heads, config.head_dim)
        shape = (config.num_hidden_layers, pages, page_size, *heads)
        self._keys, self._values = (model.put(np.zeros(shape, np.float16)) for _ in range(2))
        self._width = min(pages, -(-config.max_position_embeddings // page_size))
        # The same functions; those of attune.torch are operators of PyTorch.
        self._ops = import_module("attune" if model.xp is np else "attune.torch")
        self._decode: Callable[[Batch], Array] = self.next_tokens
        if graphs:
            from .graphs import Graphs

            self._decode = Graphs(self.next_tokens)

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    def add(self, request: Request) -> None:
        """Raises ValueError for a request that the cache or the model is too small for."""
        length = request.prompt + request.new_tokens
        most = self.model.config.max_position_embeddings
        if length > most:
            raise ValueError(f"the request takes {length} tokens; the model has {most} positions")
        self.scheduler.add(request)

    def step(self) -> None:
        """Computes a step's chunks and appends the tokens that they give."""
        chunks = self.scheduler.schedule()
        if not chunks:
            return
        batch = self._batch(chunks)
        self._count(chunks)
        serve = self._decode if batch.most == 1 else self.next_tokens
        for chunk, token in zip(chunks, serve(batch).tolist()):
            if chunk.gives_token:
                chunk.request.tokens.append(token)
                if chunk.request.done:
                    self.scheduler.finish(chunk.request)

    def next_tokens(self, batch: Batch) -> Array:
        """The likeliest token after each sequence's last."""
        model, ops = self.model, self._ops
        rotation = {"rotary_interleaved": False, "positions": batch.positions}

        def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
            cache = self._keys[layer], self._values[layer]
            ops.store_kvcache(
                k,
                v,
                *cache,
                slot_mapping=batch.slots,
                rotary_cos=model.cos,
                rotary_sin=model.sin,
                **rotation,
            )
            ops.apply_rotary(q, None, model.cos, model.sin, **rotation)
            if batch.most == 1:
                return ops.flash_attn_with_kvcache(
                    q[:, None],
                    *cache,
                    cache_seqlens=batch.lengths,
                    block_table=batch.block_table,
                    causal=True,
                )
            return ops.flash_attn_varlen_func(
                q,
                *cache,
                batch.starts,
                None,
                max_seqlen_q=batch.most,
                max_seqlen_k=batch.longest,
                causal=True,
                block_table=batch.block_table,
                seqused_k=batch.lengths,
            )

        logits = model(batch.tokens, attend, batch.starts[1:] - 1)
        return model.xp.argmax(logits, -1)

    def _batch(self, chunks: list[Chunk]) -> Batch:
        size = self.scheduler.pages.size
        table = np.zeros((len(chunks), self._width), np.int32)
        tokens, positions, slots = [], [], []
        for row, (request, start, end) in zip(table, chunks):
            row[: len(request.pages)] = request.pages
            places = np.arange(start, end, dtype=np.int32)
            tokens += request.tokens[start:end]
            positions.append(places)
            slots.append(row[places // size] * size + places % size)
        counts = [end - start for _, start, end in chunks]
        lengths = [end for _, _, end in chunks]
        arrays = (
            np.array(tokens, np.int32),
            np.concatenate(positions),
            np.concatenate(slots),
            np.cumsum([0, *counts], dtype=np.int32),
            np.array(lengths, np.int32),
            table,
        )
        return Batch(*map(self.model.put, arrays), most=max(counts), longest=max(lengths))

    def _count(self, chunks: list[Chunk]) -> None:
        decoding = sum(chunk.start >= chunk.request.prompt for chunk in chunks)
        self.counts.steps += 1
        self.counts.decode += decoding == len(chunks)
        self.counts.mixed += 0 < decoding < len(chunks)
        self.counts.waiting = max(self.counts.waiting, len(self.scheduler.waiting))
