"""What answers are held to: attention in float32 or 64, and the same formula naively in bf16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import masks
from .inputs import Inputs
from .runner import Call, Verdict

#: How many scores are held at a time: 512 MiB of them in float32.
_SCORES = 1 << 27
#: Bands of the sequence that are judged on their own, so that the large values of a causal mask's
#: first rows do not excuse errors in the small ones of its last.
_BANDS = 16
_SHORTEST_BAND = 128


class Judge:
    """Judges answers to one case: the whole of each, in every band of the sequence.

    Allowed is twice, for gradients three times, the largest error that the naive bf16 formula makes
    in the same band.
    """

    def __init__(self, inputs: Inputs) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False  # some environments turn it on
        self.exact = attention(inputs)
        naive = attention(inputs, torch.bfloat16)
        factor = 2.0 if inputs.dout is None else 3.0
        self.allowed = [factor * _band_errors(x, y) for x, y in zip(naive, self.exact)]

    def __call__(self, call: Call) -> Verdict:
        """Of the answer of this call, which is made once."""
        return self.verdict(self.answer(call))

    def answer(self, call: Call) -> Any:
        """That of the call, made over memory that was left full of NaN."""
        poison = [torch.full_like(x, float("nan"), dtype=torch.bfloat16) for x in self.exact]
        del poison
        return call()

    def verdict(self, answer: torch.Tensor | Sequence[torch.Tensor]) -> Verdict:
        parts = (answer,) if isinstance(answer, torch.Tensor) else tuple(answer)
        worst: Verdict | None = None
        for part, exact, allowed in zip(parts, self.exact, self.allowed, strict=True):
            if part.shape != exact.shape:
                raise ValueError(f"the answer is {tuple(part.shape)}, not {tuple(exact.shape)}")
            found = worst_of(_band_errors(part.detach(), exact), allowed)
            if worst is None or _excess(found) > _excess(worst):
                worst = found
        assert worst is not None
        return worst


def worst_of(errors: torch.Tensor, allowed: torch.Tensor) -> Verdict:
    """Where errors are largest beside what is allowed there."""
    place = int((errors / allowed.clamp(min=1e-30)).argmax())  # that of a NaN, if any
    return Verdict(float(errors[place]), float(allowed[place]))


def _excess(verdict: Verdict) -> float:
    if verdict.error != verdict.error:
        return float("inf")
    return verdict.error / max(verdict.allowed, 1e-30)


def _band_errors(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    by_position = (answer.float() - exact).abs().amax(dim=(0, 2, 3))
    bands = max(1, min(_BANDS, len(by_position) // _SHORTEST_BAND))
    return torch.stack([band.amax() for band in by_position.tensor_split(bands)])


@torch.no_grad()
def attention(
    inputs: Inputs, storage: torch.dtype | None = None, arithmetic: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    """The output, or with a gradient of it those of q, k and v, shaped like the inputs.

    Causal masks and windows are aligned to the last query and key. All is done and returned in
    `arithmetic`. With `storage` every intermediate result is rounded to that dtype, which is what one would write
    without thinking of accuracy.

    Paper: the backward formulas of FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
    case = inputs.case

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x if storage is None else x.to(storage).to(arithmetic)

    like = (inputs.q,) if inputs.dout is None else (inputs.q, inputs.k, inputs.v)
    results = tuple(torch.zeros_like(x, dtype=arithmetic) for x in like)
    group = case.heads_q // case.heads_kv
    rows = max(1, _SCORES // (group * case.seqlen_k))
    scale = case.head_dim**-0.5
    for batch in range(case.batch):
        for head_kv in range(case.heads_kv):
            heads = slice(head_kv * group, (head_kv + 1) * group)
            k, v = (x[batch, :, head_kv].to(arithmetic) for x in (inputs.k, inputs.v))
            for first in range(0, case.seqlen_q, rows):
                part = (batch, slice(first, first + rows), heads)
                q = inputs.q[part].to(arithmetic).transpose(0, 1)  # (group, rows, head_dim)
                scores = rounded(scale * (q @ k.T))
                if case.rule is not None:
                    head = head_kv * group
                    scores = rounded(masks.applied(case, scores, batch, head, first))
                elif case.causal or case.window is not None:
                    position = first + case.seqlen_k - case.seqlen_q
                    query = torch.arange(position, position + q.shape[1], device=q.device)[:, None]
                    key = torch.arange(case.seqlen_k, device=q.device)
                    before, behind = case.window_size
                    hidden = key > query + behind
                    if before >= 0:
                        hidden |= key < query - before
                    scores.masked_fill_(hidden, float("-inf"))
                weights = rounded(torch.exp(scores - scores.amax(-1, keepdim=True)))
                del scores
                weights = rounded(weights / weights.sum(-1, keepdim=True))
                out = rounded(weights @ v)
                if inputs.dout is None:
                    results[0][part] = out.transpose(0, 1)
                    continue
                dq, dk, dv = results
                dout = inputs.dout[part].to(arithmetic).transpose(0, 1)
                delta = (dout * out).sum(-1, keepdim=True)
                dscores = rounded(weights * (rounded(dout @ v.T) - delta))
                dq[part] = rounded(scale * (dscores @ k)).transpose(0, 1)
                dk[batch, :, head_kv] += scale * (dscores.transpose(1, 2) @ q).sum(0)
                dv[batch, :, head_kv] += (weights.transpose(1, 2) @ dout).sum(0)
    return tuple(rounded(x) for x in results)
