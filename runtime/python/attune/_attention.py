"""flash-attn 2's functions for prefill over the C ABI."""

from __future__ import annotations

from . import _attune
from ._arguments import Array, GradientWanted, Pair, dropout_state
from ._functions import documented
from ._gradients import differentiable


@documented
def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, q)
    try:
        result: Array | tuple[Array, Array, None] = _attune.attention(
            q,
            k,
            v,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        return differentiable(
            "flash_attn_func",
            q,
            k,
            v,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result


@documented
def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, q)
    try:
        result: Array | tuple[Array, Array, None] = _attune.attention_kvpacked(
            q,
            kv,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        return differentiable(
            "flash_attn_kvpacked_func",
            q,
            kv,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result


@documented
def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, qkv)
    try:
        result: Array | tuple[Array, Array, None] = _attune.attention_qkvpacked(
            qkv,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        return differentiable(
            "flash_attn_qkvpacked_func",
            qkv,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result


@documented
def flash_attn_varlen_func(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    block_table: Array | None = None,
    *,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    out: Array | None = None,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, q)
    try:
        result: Array | tuple[Array, Array, None] = _attune.varlen(
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            block_table,
            seqused_q,
            seqused_k,
            out,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        if block_table is not None or out is not None:
            raise
        return differentiable(
            "flash_attn_varlen_func",
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            seqused_q=seqused_q,
            seqused_k=seqused_k,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result


@documented
def flash_attn_varlen_kvpacked_func(
    q: Array,
    kv: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, q)
    try:
        result: Array | tuple[Array, Array, None] = _attune.varlen_kvpacked(
            q,
            kv,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        return differentiable(
            "flash_attn_varlen_kvpacked_func",
            q,
            kv,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result


@documented
def flash_attn_varlen_qkvpacked_func(
    qkv: Array,
    cu_seqlens: Array,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]:
    rng_state = dropout_state(dropout_p, rng_state, qkv)
    try:
        result: Array | tuple[Array, Array, None] = _attune.varlen_qkvpacked(
            qkv,
            cu_seqlens,
            max_seqlen,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            return_attn_probs,
            rng_state,
            learnable_sink,
        )
    except GradientWanted:
        return differentiable(
            "flash_attn_varlen_qkvpacked_func",
            qkv,
            cu_seqlens,
            max_seqlen,
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            alibi_slopes,
            deterministic,
            return_attn_probs,
            rng_state=rng_state,
            learnable_sink=learnable_sink,
        )
    return result
