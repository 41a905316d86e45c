"""Attention whose scores and masks are expressions, over the C ABI."""

from __future__ import annotations

from collections.abc import Mapping

from . import _attune
from ._arguments import Array, GradientWanted, Pair, require_one_kind
from ._functions import documented
from ._gradients import differentiable
from ._texts import Expression, arrays_of, complete


@documented
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Array] | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    block_table: Array | None = None,
    cache_seqlens: int | Array | None = None,
    cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None,
    k_new: Array | None = None,
    v_new: Array | None = None,
    rotary_cos: Array | None = None,
    rotary_sin: Array | None = None,
    rotary_interleaved: bool = True,
    num_splits: int = 0,
    learnable_sink: Array | None = None,
    deterministic: bool | None = None,
) -> Array | tuple[Array, Array]:
    arrays = arrays_of(params)
    texts = (*complete(score, mask, arrays), arrays)
    require_one_kind(
        cache_seqlens,
        cu_seqlens_q,
        of_cache={
            "cache_batch_idx": cache_batch_idx,
            "cache_leftpad": cache_leftpad,
            "k_new": k_new,
            "v_new": v_new,
            "rotary_cos": rotary_cos,
            "rotary_sin": rotary_sin,
            "num_splits": num_splits or None,
        },
        of_keys={
            "cu_seqlens_k": cu_seqlens_k,
            "max_seqlen_k": max_seqlen_k,
            "seqused_q": seqused_q,
            "seqused_k": seqused_k,
        },
        of_ragged={"max_seqlen_q": max_seqlen_q, "block_table": block_table},
    )
    options = (0.0, softmax_scale, causal, window_size, softcap, None, return_lse)
    try:
        if cache_seqlens is not None:
            result = _attune.expressed_decode(
                q,
                k,
                v,
                k_new,
                v_new,
                rotary_cos,
                rotary_sin,
                cache_seqlens,
                cache_batch_idx,
                cache_leftpad,
                block_table,
                softmax_scale,
                causal,
                window_size,
                softcap,
                rotary_interleaved,
                None,
                num_splits,
                return_lse,
                None,
                False,
                cu_seqlens_q,
                max_seqlen_q,
                learnable_sink,
                *texts,
            )
        elif cu_seqlens_q is not None:
            longest = (max_seqlen_q, max_seqlen_k)
            used = (seqused_q, seqused_k, None, None, learnable_sink)
            result = _attune.expressed_varlen(
                q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, *options, block_table, *used, *texts
            )
        else:
            result = _attune.expressed_attention(q, k, v, *options, None, learnable_sink, *texts)
    except GradientWanted:
        if cache_seqlens is not None or block_table is not None:
            raise
        return differentiable(
            "attention",
            q,
            k,
            v,
            score=score,
            mask=mask,
            params=params,
            softmax_scale=softmax_scale,
            causal=causal,
            window_size=window_size,
            softcap=softcap,
            return_lse=return_lse,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            seqused_q=seqused_q,
            seqused_k=seqused_k,
            learnable_sink=learnable_sink,
            deterministic=deterministic,
        )
    return (result[0], result[1]) if return_lse else result
