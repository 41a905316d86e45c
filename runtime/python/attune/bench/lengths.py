"""The lengths suite: a batch of unequal lengths beside one of even lengths with as many keys."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import attune

from .inputs import Inputs
from .reference import attention, worst_of
from .report import Result
from .runner import Call, Clock, Verdict, run_case
from .suites import Case


@dataclass(frozen=True)
class _Pool:
    """Normally distributed queries of each sequence, and pages of keys and values for all of them."""

    case: Case
    q: torch.Tensor  # (batch, 1, heads_q, head_dim)
    k: torch.Tensor  # (pages, page_size, heads_kv, head_dim)
    v: torch.Tensor

    @classmethod
    def of(cls, case: Case, device: str) -> _Pool:
        assert case.page_size is not None
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int) -> torch.Tensor:
            shape = (*shape, case.head_dim)
            return torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)

        pages = max(
            sum(-(-length // case.page_size) for length in lengths)
            for lengths in (case.lengths, case.even_lengths)
        )
        q = normal(case.batch, 1, case.heads_q)
        return cls(case, q, *(normal(pages, case.page_size, case.heads_kv) for _ in "kv"))


class _Batch:
    """Sequences of these lengths in pages of the pool, in no order: a call, and what it is held to."""

    def __init__(self, pool: _Pool, lengths: Sequence[int]) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        device, page_size = pool.q.device, pool.k.shape[1]
        generator = torch.Generator(device).manual_seed(1)
        order = torch.randperm(len(pool.k), generator=generator, device=device).int()
        ends = list(itertools.accumulate(-(-length // page_size) for length in lengths))
        places = [order[first:end] for first, end in zip([0, *ends], ends)]
        self.pool = pool
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.table = torch.nn.utils.rnn.pad_sequence(places, batch_first=True, padding_value=-1)
        parts = [
            _reference(pool, sequence, places[sequence], length)
            for sequence, length in enumerate(lengths)
        ]
        self.exact = torch.cat([exact for exact, _ in parts])
        self.allowed = 2 * _errors(torch.cat([naive for _, naive in parts]), self.exact)

    def __call__(self) -> torch.Tensor:
        out = attune.flash_attn_with_kvcache(
            self.pool.q,
            self.pool.k,
            self.pool.v,
            cache_seqlens=self.lengths,
            block_table=self.table,
        )
        assert isinstance(out, torch.Tensor)
        return out

    def verdict(self) -> Verdict:
        """Of the call over memory that was left full of NaN, sequence by sequence."""
        poison = torch.full_like(self.exact, float("nan"), dtype=torch.bfloat16)
        del poison
        return worst_of(_errors(self(), self.exact), self.allowed)


def _errors(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return (answer.float() - exact).abs().amax(dim=(1, 2, 3))


def _reference(
    pool: _Pool, sequence: int, pages: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence's output, and that of the naive formula."""
    k, v = (x[pages.long()].flatten(0, 1)[None, :length] for x in (pool.k, pool.v))
    case = dataclasses.replace(pool.case, batch=1, seqlen_k=length, shortest=None)
    inputs = Inputs(case, pool.q[sequence : sequence + 1], k, v, None)
    return attention(inputs)[0], attention(inputs, torch.bfloat16)[0]


def measure(case: Case, clock: Clock, device: str = "cuda") -> dict[str, Result]:
    """The time of the case's lengths, and that of as many keys in even ones."""
    pool = _Pool.of(case, device)

    def preparing(lengths: Sequence[int]) -> Callable[[], Call]:
        return lambda: _Batch(pool, lengths)

    def judge(call: Call) -> Verdict:
        assert isinstance(call, _Batch)
        return call.verdict()

    contenders = {
        "attune": preparing(case.lengths),
        "attune_even": preparing(case.even_lengths),
    }
    return run_case(contenders, judge, clock)
