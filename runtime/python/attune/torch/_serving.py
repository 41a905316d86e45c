"""What serving does with a K/V cache, through operators."""

from __future__ import annotations

import torch

from .._arguments import Pair
from .._functions import documented_for_torch
from . import _ops
from ._arguments import require_tensor, wants_gradient, window


@documented_for_torch
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    check_tables: bool = False,
    cu_seqlens_q: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    require_tensor("q", q)
    require_tensor("k_cache", k_cache)
    require_tensor("v_cache", v_cache)
    on_device = isinstance(cache_seqlens, torch.Tensor)
    keys = (cache_seqlens, None) if on_device else (None, cache_seqlens)
    where = (*keys, cache_batch_idx, block_table)
    how = (softmax_scale, causal, *window(window_size), softcap)
    if k is None and v is None and rotary_cos is None and rotary_sin is None:
        queries = (cu_seqlens_q, max_seqlen_q)
        rest = (num_splits, check_tables, *queries, cache_leftpad, alibi_slopes, learnable_sink)
        out, softmax_lse = _ops.cached(q, k_cache, v_cache, *where, *how, *rest)
    elif cu_seqlens_q is not None or max_seqlen_q is not None:
        raise ValueError(
            "k is given with cu_seqlens_q; store_kvcache writes the new keys of a ragged batch"
        )
    else:
        require_tensor("k", k)
        require_tensor("v", v)
        new = (k, v, rotary_cos, rotary_sin)
        rest = (rotary_interleaved, num_splits, check_tables, cache_leftpad)
        rest += (alibi_slopes, learnable_sink)
        out, softmax_lse = _ops.appended(q, k_cache, v_cache, *new, *where, *how, *rest)
    return (out, softmax_lse) if return_softmax_lse else out


@documented_for_torch
def store_kvcache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    slot_mapping: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    check_tables: bool = False,
) -> None:
    require_tensor("k", k)
    require_tensor("v", v)
    require_tensor("k_cache", k_cache)
    require_tensor("v_cache", v_cache)
    _ops.store(
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        cache_seqlens,
        cache_batch_idx,
        block_table,
        positions,
        rotary_cos,
        rotary_sin,
        rotary_interleaved,
        check_tables,
    )


@documented_for_torch
def merge_attn_states(
    o1: torch.Tensor,
    lse1: torch.Tensor,
    o2: torch.Tensor,
    lse2: torch.Tensor,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    for name, value in (("o1", o1), ("lse1", lse1), ("o2", o2), ("lse2", lse2)):
        require_tensor(name, value)
    merge = _ops.merge_train if wants_gradient(o1, lse1, o2, lse2) else _ops.merge
    out, lse = merge(o1, lse1, o2, lse2)
    return (out, lse) if return_lse else out
