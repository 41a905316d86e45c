"""The tensors of a case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from .suites import Case


@dataclass(frozen=True)
class Pages:
    """Keys and values in pages, (pages, page_size, heads, head_dim), in no order."""

    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor  #: (batch and others, pages of the longest), int32
    lengths: torch.Tensor  #: keys of each, int32


@dataclass(frozen=True)
class Inputs:
    """Normally distributed bf16 tensors, (batch, seqlen, heads, head_dim) and contiguous.

    With outliers an element in a thousand of q, k and v has a normal value of standard deviation 10
    added: N(0, 1) + N(0, 100) Bernoulli(0.001).

    Paper: the outliers are those of FlashAttention-3, https://arxiv.org/abs/2407.08608.

    `dout`, the gradient of the output, is there for the backward pass only; q, k and v then require
    gradients.
    """

    case: Case
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None

    @classmethod
    def of(cls, case: Case, device: str = "cuda") -> Inputs:
        """The same for a case in every run on one kind of device."""
        generator, rare = (torch.Generator(device).manual_seed(seed) for seed in (0, 2))

        def normal(seqlen: int, heads: int) -> torch.Tensor:
            shape = (case.batch, seqlen, heads, case.head_dim)
            return torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)

        def attended(seqlen: int, heads: int) -> torch.Tensor:
            x = normal(seqlen, heads)
            if case.outliers:
                # In float32: draws in bf16 are too coarse for one in a thousand.
                chosen = torch.rand(x.shape, generator=rare, device=device) < 0.001
                x += chosen * 10 * torch.randn(x.shape, generator=rare, device=device)
            return x.requires_grad_(backward)

        backward = case.has_gradients
        q = attended(case.seqlen_q, case.heads_q)
        k, v = (attended(case.seqlen_k, case.heads_kv) for _ in "kv")
        return cls(case, q, k, v, normal(case.seqlen_q, case.heads_q) if backward else None)

    @cached_property
    def pages(self) -> Pages:
        """k and v again, and those of other sequences, in pages of the case's page_size.

        It divides both lengths.
        """
        case, page_size, device = self.case, self.case.page_size, self.k.device
        assert page_size is not None
        generator = torch.Generator(device).manual_seed(1)
        own, other = case.seqlen_k // page_size, case.other_length // page_size  # of a sequence
        count = case.batch * own + case.others * other
        places = torch.randperm(count, generator=generator, device=device)
        own_places, other_places = places.int().split((case.batch * own, case.others * other))

        def shuffled(x: torch.Tensor) -> torch.Tensor:
            shape = (page_size, case.heads_kv, case.head_dim)
            pages = x.new_empty(count, *shape)
            pages.index_copy_(0, own_places.long(), x.reshape(-1, *shape))
            others = torch.randn(
                (case.others * other, *shape), generator=generator, device=device, dtype=x.dtype
            )
            return pages.index_copy_(0, other_places.long(), others)

        table = own_places.new_zeros(case.batch + case.others, max(own, other))
        table[: case.batch, :own] = own_places.view(case.batch, own)
        table[case.batch :, :other] = other_places.view(case.others, other)
        lengths = table.new_full((case.batch + case.others,), case.seqlen_k)
        lengths[case.batch :] = case.other_length
        return Pages(shuffled(self.k), shuffled(self.v), table, lengths)
