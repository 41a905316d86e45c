"""CUDA graphs of steps that only decode."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .engine import Batch


class Graphs:
    """A function of a batch with one token a sequence, as replays of CUDA graphs.

    There is a graph for each power of two, captured when a batch first needs it: lengths, tables and slots are read on
    the GPU, so that it serves every later one. A sequence that a batch lacks has no keys, and its token is not stored.
    """

    def __init__(self, function: Callable[[Batch], torch.Tensor]) -> None:
        self._function = function
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Batch, torch.Tensor]] = {}

    def __call__(self, batch: Batch) -> torch.Tensor:
        count = len(batch.tokens)
        size = 1 << (count - 1).bit_length()
        if size not in self._captured:
            self._captured[size] = self._capture(batch, size)
        graph, held, out = self._captured[size]
        for given, kept in zip(batch.arrays, held.arrays):
            kept[: len(given)].copy_(given)
        held.slots[count:] = -1
        held.lengths[count:] = 0
        graph.replay()
        return out[:count]

    def _capture(self, batch: Batch, size: int) -> tuple[torch.cuda.CUDAGraph, Batch, torch.Tensor]:
        def room(given: torch.Tensor, rows: int) -> torch.Tensor:
            return given.new_zeros((rows, *given.shape[1:]))

        rows = (size, size, size, size + 1, size, size)
        held = Batch(*map(room, batch.arrays, rows), most=1, longest=batch.longest)
        held.slots.fill_(-1)
        torch.arange(size + 1, out=held.starts)
        self._function(held)  # loads the kernels; nothing is stored
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self._function(held)
        return graph, held, out
