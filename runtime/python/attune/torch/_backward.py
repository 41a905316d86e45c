"""The gradients of attention, through an operator."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .._arguments import Pair
from .._functions import documented_for_torch
from .._texts import Expression
from . import _ops
from ._arguments import require_tensor, texts_and_arrays, window


@documented_for_torch
def flash_attn_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    *,
    dsoftmax_lse: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    rng_state: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_tensor("dout", dout)
    require_tensor("q", q)
    require_tensor("k", k)
    require_tensor("v", v)
    require_tensor("out", out)
    require_tensor("softmax_lse", softmax_lse)
    left, right = window(window_size)
    return _ops.backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dsoftmax_lse,
        softmax_scale,
        causal,
        left,
        right,
        softcap,
        deterministic,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_q,
        seqused_k,
        dropout_p,
        rng_state,
        alibi_slopes,
        *texts_and_arrays(score, mask, params),
    )
