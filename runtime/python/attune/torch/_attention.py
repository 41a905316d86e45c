"""flash-attn 2's functions for prefill, through operators."""

from __future__ import annotations

import torch

from .._arguments import Pair, dropout_state
from .._functions import documented_for_torch
from . import _ops
from ._arguments import is_differentiated, refuse_gradients, require_tensor, unpack, window


@documented_for_torch
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    require_tensor("q", q)
    require_tensor("k", k)
    require_tensor("v", v)
    left, right = window(window_size)
    differentiated = is_differentiated(q, k, v, alibi_slopes, learnable_sink, softcap)
    if dropout_p != 0 or differentiated:
        state = dropout_state(dropout_p, rng_state, q)
        out, softmax_lse = _ops.train(
            q,
            k,
            v,
            softmax_scale,
            causal,
            left,
            right,
            softcap,
            deterministic,
            dropout_p,
            state,
            alibi_slopes,
            learnable_sink,
        )
        return (out, softmax_lse, None) if return_attn_probs else out
    if return_attn_probs:
        out, softmax_lse = _ops.flash_attn_lse(
            q, k, v, softmax_scale, causal, left, right, softcap, alibi_slopes, learnable_sink
        )
        return out, softmax_lse, None
    return _ops.flash_attn(
        q, k, v, softmax_scale, causal, left, right, softcap, alibi_slopes, learnable_sink
    )


@documented_for_torch
def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    k, v = unpack("kv", kv, 2, "batch, seqlen")
    return flash_attn_func(
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


@documented_for_torch
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    q, k, v = unpack("qkv", qkv, 3, "batch, seqlen")
    return flash_attn_func(
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


@documented_for_torch
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    *,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    require_tensor("q", q)
    require_tensor("k", k)
    require_tensor("v", v)
    require_tensor("cu_seqlens_q", cu_seqlens_q)
    if block_table is None:
        require_tensor("cu_seqlens_k", cu_seqlens_k)
    left, right = window(window_size)
    if dropout_p != 0 and block_table is not None:
        raise NotImplementedError(
            "dropout_p is not 0, and keys in a cache are served without dropout"
        )
    differentiated = is_differentiated(q, k, v, alibi_slopes, learnable_sink, softcap)
    if differentiated and block_table is not None:
        refuse_gradients("keys in a cache")
    if dropout_p != 0 or differentiated:
        out, softmax_lse = _ops.varlen_train(
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            seqused_q,
            seqused_k,
            softmax_scale,
            causal,
            left,
            right,
            softcap,
            deterministic,
            dropout_p,
            dropout_state(dropout_p, rng_state, q),
            alibi_slopes,
            learnable_sink,
        )
        return (out, softmax_lse, None) if return_attn_probs else out
    out, softmax_lse = _ops.varlen(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_k,
        block_table,
        softmax_scale,
        causal,
        left,
        right,
        softcap,
        seqused_q,
        alibi_slopes,
        learnable_sink,
    )
    return (out, softmax_lse, None) if return_attn_probs else out


@documented_for_torch
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    k, v = unpack("kv", kv, 2, "total_k")
    return flash_attn_varlen_func(
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
        rng_state=rng_state,
        learnable_sink=learnable_sink,
    )


@documented_for_torch
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    q, k, v = unpack("qkv", qkv, 3, "total")
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens,
        cu_seqlens,
        max_seqlen,
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
