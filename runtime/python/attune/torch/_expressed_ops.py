"""The operators attune::attention and attune::attention_append, which take expressions as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import attention as attend
from . import _fakes
from ._ops import register

_EXPRESSIONS = "str? score, str? mask, str[] names, Tensor[] params"
_OPTIONS = "float? softmax_scale, bool causal, int window_left, int window_right, float softcap"
_CACHE = (
    "Tensor? cache_seqlens=None, SymInt? seqlen_k=None, Tensor? cache_batch_idx=None, "
    "Tensor? cache_leftpad=None, int num_splits=0, Tensor? learnable_sink=None"
)

#: Exported programs hold calls by these: they only grow, at their ends.
SCHEMAS = {
    "attention": (
        f"attention(Tensor q, Tensor k, Tensor v, {_EXPRESSIONS}, {_OPTIONS}, Tensor? cu_seqlens_q=None, "
        "Tensor? cu_seqlens_k=None, SymInt? max_seqlen_q=None, SymInt? max_seqlen_k=None, "
        f"Tensor? seqused_q=None, Tensor? seqused_k=None, Tensor? block_table=None, {_CACHE}) "
        "-> (Tensor out, Tensor softmax_lse)"
    ),
    "attention_append": (
        "attention_append(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k_new, Tensor v_new, "
        f"{_EXPRESSIONS}, {_OPTIONS}, Tensor? block_table=None, Tensor? rotary_cos=None, "
        f"Tensor? rotary_sin=None, bool rotary_interleaved=True, {_CACHE}) "
        "-> (Tensor out, Tensor softmax_lse)"
    ),
}


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    score: str | None,
    mask: str | None,
    names: Sequence[str],
    params: Sequence[torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
    window_left: int,
    window_right: int,
    softcap: float,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | None = None,
    seqlen_k: int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    num_splits: int = 0,
    learnable_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = attend(
        q,
        k,
        v,
        score=score,
        mask=mask,
        params=dict(zip(names, params, strict=True)),
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        return_lse=True,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        block_table=block_table,
        cache_seqlens=seqlen_k if cache_seqlens is None else cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        num_splits=num_splits,
        learnable_sink=learnable_sink,
    )
    return result[0], result[1]


def _append(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_new: torch.Tensor,
    v_new: torch.Tensor,
    score: str | None,
    mask: str | None,
    names: Sequence[str],
    params: Sequence[torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
    window_left: int,
    window_right: int,
    softcap: float,
    block_table: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    cache_seqlens: torch.Tensor | None = None,
    seqlen_k: int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    num_splits: int = 0,
    learnable_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = attend(
        q,
        k_cache,
        v_cache,
        score=score,
        mask=mask,
        params=dict(zip(names, params, strict=True)),
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        return_lse=True,
        block_table=block_table,
        cache_seqlens=seqlen_k if cache_seqlens is None else cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        k_new=k_new,
        v_new=v_new,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        rotary_interleaved=rotary_interleaved,
        num_splits=num_splits,
        learnable_sink=learnable_sink,
    )
    return result[0], result[1]


attention = register("attention", SCHEMAS["attention"], _attention, _fakes.attention_lse)
append = register("attention_append", SCHEMAS["attention_append"], _append, _fakes.appended)
