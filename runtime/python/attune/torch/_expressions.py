"""Attention whose scores and masks are expressions, through operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import _tracing
from .._arguments import Pair
from .._expressions import (
    NOT_OF_CACHE,
    OF_CACHE,
    OF_RAGGED,
    Expression,
    refuse_together,
    text_of,
)
from . import _expressed_ops
from ._arguments import refuse_gradients, require_tensor, window

# torch.compile calls it while it traces, as it takes no tensors.
torch.compiler.assume_constant_result(_tracing.trace)


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
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """attune.attention of PyTorch tensors, through an operator that torch.compile takes.

    Arguments, results and errors are those of attune.attention. Functions are traced where torch.compile traces the
    call, once: what they read of Python's variables is taken for a constant. There they are functions that were defined
    outside what is compiled, until PyTorch takes others for constants (a text may stand anywhere).
    """
    require_tensor("q", q)
    require_tensor("k", k)
    require_tensor("v", v)
    refuse_gradients("expressions", q, k, v)
    arrays = dict(params or {})
    for name, array in arrays.items():
        require_tensor(f"params[{name!r}]", array)
    texts = (text_of(score, arrays), text_of(mask, arrays), list(arrays), list(arrays.values()))
    options = (softmax_scale, causal, *window(window_size), softcap)
    lengths = {"max_seqlen_k": max_seqlen_k, "seqused_q": seqused_q, "seqused_k": seqused_k}
    rotation = {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
    new = {"k_new": k_new, "v_new": v_new}
    places = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad}
    if cache_seqlens is None:
        refuse_together({**places, **new, **rotation, "num_splits": num_splits or None}, OF_CACHE)
    else:
        refuse_together({"cu_seqlens_k": cu_seqlens_k, **lengths}, NOT_OF_CACHE)
    if cache_seqlens is None and cu_seqlens_q is None:
        ragged = {"cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q, **lengths}
        refuse_together({**ragged, "block_table": block_table}, OF_RAGGED)
    named: dict[str, Any] = {"block_table": block_table, "num_splits": num_splits, **places}
    named["learnable_sink"] = learnable_sink
    if isinstance(cache_seqlens, torch.Tensor):
        named["cache_seqlens"] = cache_seqlens
    else:
        named["seqlen_k"] = cache_seqlens
    if k_new is None and v_new is None and rotary_cos is None and rotary_sin is None:
        named.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, **lengths)
        named.update(max_seqlen_q=max_seqlen_q)
        out, lse = _expressed_ops.attention(q, k, v, *texts, *options, **named)
    elif cu_seqlens_q is not None or max_seqlen_q is not None:
        raise ValueError(
            "k_new is given with cu_seqlens_q; store_kvcache writes the new keys of a ragged batch"
        )
    else:
        require_tensor("k_new", k_new)
        require_tensor("v_new", v_new)
        named.update(rotary_interleaved=rotary_interleaved, **rotation)
        out, lse = _expressed_ops.append(q, k, v, k_new, v_new, *texts, *options, **named)
    return (out, lse) if return_lse else out
