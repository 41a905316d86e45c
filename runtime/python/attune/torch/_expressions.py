"""Attention whose scores and masks are expressions, through operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._arguments import Pair, require_one_kind
from .._functions import documented_for_torch
from .._texts import Expression
from . import _ops
from ._arguments import refuse_gradients, require_tensor, texts_and_arrays, wants_gradient, window


@documented_for_torch
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    k_new: torch.Tensor | None = None,
    v_new: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    num_splits: int = 0,
    learnable_sink: torch.Tensor | None = None,
    deterministic: bool | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    require_tensor("q", q)
    require_tensor("k", k)
    require_tensor("v", v)
    if learnable_sink is not None:
        require_tensor("learnable_sink", learnable_sink)
    common = (*texts_and_arrays(score, mask, params), softmax_scale, causal, *window(window_size))
    common += (softcap,)
    of_keys = {
        "cu_seqlens_k": cu_seqlens_k,
        "max_seqlen_k": max_seqlen_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
    }
    places = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad}
    new = {"k_new": k_new, "v_new": v_new, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
    require_one_kind(
        cache_seqlens,
        cu_seqlens_q,
        of_cache={**places, **new, "num_splits": num_splits or None},
        of_keys=of_keys,
        of_ragged={"max_seqlen_q": max_seqlen_q, "block_table": block_table},
    )
    ragged = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, **of_keys}
    named: dict[str, Any] = {"block_table": block_table, "num_splits": num_splits, **places}
    named["learnable_sink"] = learnable_sink
    keys = "cache_seqlens" if isinstance(cache_seqlens, torch.Tensor) else "seqlen_k"
    named[keys] = cache_seqlens
    if wants_gradient(q, k, v, learnable_sink):
        if cache_seqlens is not None or block_table is not None:
            refuse_gradients("keys in a cache")
        how = {"deterministic": deterministic, "learnable_sink": learnable_sink}
        out, lse = _ops.expressed_train(q, k, v, *common, **ragged, **how)
    elif all(one is None for one in new.values()):
        out, lse = _ops.expressed(q, k, v, *common, **ragged, **named)
    elif cu_seqlens_q is not None or max_seqlen_q is not None:
        raise ValueError(
            "k_new is given with cu_seqlens_q; store_kvcache writes the new keys of a ragged batch"
        )
    else:
        require_tensor("k_new", k_new)
        require_tensor("v_new", v_new)
        named.update(rotary_cos=rotary_cos, rotary_sin=rotary_sin)
        named.update(rotary_interleaved=rotary_interleaved)
        out, lse = _ops.expressed_append(q, k, v, k_new, v_new, *common, **named)
    return (out, lse) if return_lse else out
