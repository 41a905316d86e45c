"""Attention for PyTorch programs that are compiled, exported or made of transformers models.

The functions are those of the package attune, for PyTorch CUDA tensors alone, as operators that are
registered with torch.library:

    import attune.torch

    @torch.compile(fullgraph=True)
    def attend(q, k, v):
        return attune.torch.flash_attn_func(q, k, v, causal=True)

torch.compile and torch.export take them, with dynamic shapes too, and CUDA graphs capture them. The
operators are torch.ops.attune.flash_attn, flash_attn_lse, flash_attn_varlen, flash_attn_with_kvcache,
flash_attn_with_kvcache_append, store_kvcache and merge_attn_states; importing this module registers them and does nothing else. It
needs PyTorch 2.4 or newer.

There is no backward yet: inputs that require a gradient raise NotImplementedError, and so do the
transforms of torch.func. Where torch.compile(fullgraph=True) traces such a call, its own error holds
this one. Call it under torch.no_grad() or torch.inference_mode() where no gradient is needed.

torch.autocast casts nothing here, as with flash-attn: float32 raises TypeError. The results are the
same bits each time, whatever torch.use_deterministic_algorithms says.

For Hugging Face transformers, register_transformers() makes attn_implementation="attune" known.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, overload

import torch

from .._attention import Pair, _refuse_given, _refuse_unserved
from . import _ops

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "merge_attn_states",
    "register_transformers",
    "store_kvcache",
]

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]


@overload
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
) -> Result: ...
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
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """attune.flash_attn_func of PyTorch tensors, through an operator that torch.compile takes.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, on a CUDA device.
        k: (batch, seqlen_k, heads_kv, head_dim).
        v: as k, or with another head_dim.

    The other arguments, the strides that are accepted, the result, the errors and the paper are those
    of attune.flash_attn_func. The result is new memory, with the strides of torch.empty_like(q), or
    contiguous where v has another head_dim.
    """
    _refuse_unserved(dropout_p, alibi_slopes)
    _require_tensor("q", q)
    _require_tensor("k", k)
    _require_tensor("v", v)
    left, right = _window(window_size)
    if return_attn_probs:
        out, softmax_lse = _ops.flash_attn_lse(q, k, v, softmax_scale, causal, left, right, softcap)
        return out, softmax_lse, None
    return _ops.flash_attn(q, k, v, softmax_scale, causal, left, right, softcap)


@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
) -> Result: ...
def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_func of keys and values in one tensor, without a copy.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim).
        kv: (batch, seqlen_k, 2, heads_kv, head_dim): keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    k, v = _unpack("kv", kv, 2, "batch, seqlen")
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
    )


@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
) -> Result: ...
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_func of queries, keys and values in one tensor, without a copy.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim): queries, keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    q, k, v = _unpack("qkv", qkv, 3, "batch, seqlen")
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
    )


@overload
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
    block_table: torch.Tensor | None = ...,
    *,
    seqused_q: torch.Tensor | None = ...,
    seqused_k: torch.Tensor | None = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
    block_table: torch.Tensor | None = ...,
    seqused_q: torch.Tensor | None = ...,
    seqused_k: torch.Tensor | None = ...,
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
    block_table: torch.Tensor | None = ...,
    *,
    seqused_q: torch.Tensor | None = ...,
    seqused_k: torch.Tensor | None = ...,
) -> Result: ...
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
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    *,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
) -> Result:
    """attune.flash_attn_varlen_func of PyTorch tensors, through an operator that torch.compile takes.

    Args:
        q: (total_q, heads_q, head_dim), float16 or bfloat16, on a CUDA device.
        k: (total_k, heads_kv, head_dim), or with a block_table (blocks, page_size, heads_kv, head_dim).
        v: as k, or with another head_dim.

    The other arguments, the result, the errors and the paper are those of
    attune.flash_attn_varlen_func. The result is new memory: there is no out.
    """
    _refuse_unserved(dropout_p, alibi_slopes)
    _require_tensor("q", q)
    _require_tensor("k", k)
    _require_tensor("v", v)
    _require_tensor("cu_seqlens_q", cu_seqlens_q)
    if block_table is None:
        _require_tensor("cu_seqlens_k", cu_seqlens_k)
    left, right = _window(window_size)
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
    )
    return (out, softmax_lse, None) if return_attn_probs else out


@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
) -> Result: ...
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
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_varlen_func of keys and values in one tensor, without a copy.

    Args:
        q: (total_q, heads_q, head_dim).
        kv: (total_k, 2, heads_kv, head_dim): keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_varlen_func.
    """
    k, v = _unpack("kv", kv, 2, "total_k")
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
    )


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    *,
    return_attn_probs: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, None]: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    alibi_slopes: torch.Tensor | None = ...,
    deterministic: bool = ...,
    return_attn_probs: bool = ...,
) -> Result: ...
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
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """flash_attn_varlen_func of queries, keys and values in one tensor, without a copy.

    Args:
        qkv: (total, 3, heads, head_dim): queries, keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_varlen_func.
    """
    q, k, v = _unpack("qkv", qkv, 3, "total")
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
    )


@overload
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = ...,
    v: torch.Tensor | None = ...,
    rotary_cos: torch.Tensor | None = ...,
    rotary_sin: torch.Tensor | None = ...,
    cache_seqlens: int | torch.Tensor | None = ...,
    cache_batch_idx: torch.Tensor | None = ...,
    cache_leftpad: torch.Tensor | None = ...,
    block_table: torch.Tensor | None = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    rotary_interleaved: bool = ...,
    alibi_slopes: torch.Tensor | None = ...,
    num_splits: int = ...,
    return_softmax_lse: Literal[False] = ...,
    *,
    check_tables: bool = ...,
    cu_seqlens_q: torch.Tensor | None = ...,
    max_seqlen_q: int | None = ...,
) -> torch.Tensor: ...
@overload
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = ...,
    v: torch.Tensor | None = ...,
    rotary_cos: torch.Tensor | None = ...,
    rotary_sin: torch.Tensor | None = ...,
    cache_seqlens: int | torch.Tensor | None = ...,
    cache_batch_idx: torch.Tensor | None = ...,
    cache_leftpad: torch.Tensor | None = ...,
    block_table: torch.Tensor | None = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    rotary_interleaved: bool = ...,
    alibi_slopes: torch.Tensor | None = ...,
    num_splits: int = ...,
    *,
    return_softmax_lse: Literal[True],
    check_tables: bool = ...,
    cu_seqlens_q: torch.Tensor | None = ...,
    max_seqlen_q: int | None = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = ...,
    v: torch.Tensor | None = ...,
    rotary_cos: torch.Tensor | None = ...,
    rotary_sin: torch.Tensor | None = ...,
    cache_seqlens: int | torch.Tensor | None = ...,
    cache_batch_idx: torch.Tensor | None = ...,
    cache_leftpad: torch.Tensor | None = ...,
    block_table: torch.Tensor | None = ...,
    softmax_scale: float | None = ...,
    causal: bool = ...,
    window_size: Pair = ...,
    softcap: float = ...,
    rotary_interleaved: bool = ...,
    alibi_slopes: torch.Tensor | None = ...,
    num_splits: int = ...,
    return_softmax_lse: bool = ...,
    *,
    check_tables: bool = ...,
    cu_seqlens_q: torch.Tensor | None = ...,
    max_seqlen_q: int | None = ...,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]: ...
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
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """attune.flash_attn_with_kvcache of PyTorch tensors, through an operator that torch.compile takes.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), or with cu_seqlens_q (total_q, heads_q, head_dim),
            float16 or bfloat16, on a CUDA device.
        k_cache: (batch_cache, seqlen_cache, heads_kv, head_dim), or with a block_table (blocks,
            page_size, heads_kv, head_dim).
        v_cache: as k_cache.

    The other arguments, the result, the errors and the papers are those of
    attune.flash_attn_with_kvcache. The result is new memory: there is no out.
    """
    _refuse_given(alibi_slopes=alibi_slopes)
    _require_tensor("q", q)
    _require_tensor("k_cache", k_cache)
    _require_tensor("v_cache", v_cache)
    on_device = isinstance(cache_seqlens, torch.Tensor)
    keys = (cache_seqlens, None) if on_device else (None, cache_seqlens)
    where = (*keys, cache_batch_idx, block_table)
    how = (softmax_scale, causal, *_window(window_size), softcap)
    if k is None and v is None and rotary_cos is None and rotary_sin is None:
        queries = (cu_seqlens_q, max_seqlen_q)
        out, softmax_lse = _ops.cached(
            q, k_cache, v_cache, *where, *how, num_splits, check_tables, *queries, cache_leftpad
        )
    elif cu_seqlens_q is not None or max_seqlen_q is not None:
        raise ValueError(
            "k is given with cu_seqlens_q; store_kvcache writes the new keys of a ragged batch"
        )
    else:
        _require_tensor("k", k)
        _require_tensor("v", v)
        new = (k, v, rotary_cos, rotary_sin)
        rest = (rotary_interleaved, num_splits, check_tables, cache_leftpad)
        out, softmax_lse = _ops.appended(q, k_cache, v_cache, *new, *where, *how, *rest)
    return (out, softmax_lse) if return_softmax_lse else out


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
    """attune.store_kvcache of PyTorch tensors, through an operator that torch.compile takes.

    Args:
        k: (batch, tokens, heads_kv, head_dim), or with a slot_mapping also (tokens, heads_kv,
            head_dim), float16 or bfloat16, on a CUDA device.
        v: as k.
        k_cache: (batch_cache, seqlen_cache, heads_kv, head_dim), or (blocks, page_size, heads_kv,
            head_dim), written in place.
        v_cache: as k_cache.

    The other arguments, the errors and the paper are those of attune.store_kvcache.
    """
    _require_tensor("k", k)
    _require_tensor("v", v)
    _require_tensor("k_cache", k_cache)
    _require_tensor("v_cache", v_cache)
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


@overload
def merge_attn_states(
    o1: torch.Tensor,
    lse1: torch.Tensor,
    o2: torch.Tensor,
    lse2: torch.Tensor,
    *,
    return_lse: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def merge_attn_states(
    o1: torch.Tensor,
    lse1: torch.Tensor,
    o2: torch.Tensor,
    lse2: torch.Tensor,
    *,
    return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def merge_attn_states(
    o1: torch.Tensor,
    lse1: torch.Tensor,
    o2: torch.Tensor,
    lse2: torch.Tensor,
    *,
    return_lse: bool = ...,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]: ...
def merge_attn_states(
    o1: torch.Tensor,
    lse1: torch.Tensor,
    o2: torch.Tensor,
    lse2: torch.Tensor,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """attune.merge_attn_states of PyTorch tensors, through an operator that torch.compile takes.

    Args:
        o1: (batch, seqlen, heads, head_dim), or (total, heads, head_dim), float16 or bfloat16, on a
            CUDA device.
        lse1: (batch, heads, seqlen) or (heads, total), float32.
        o2: as o1.
        lse2: as lse1.

    The other arguments, the result, the errors and the paper are those of attune.merge_attn_states.
    The result is new memory: there is no out.
    """
    for name, value in (("o1", o1), ("lse1", lse1), ("o2", o2), ("lse2", lse2)):
        _require_tensor(name, value)
    out, lse = _ops.merge(o1, lse1, o2, lse2)
    return (out, lse) if return_lse else out


def register_transformers() -> None:
    """Makes attn_implementation="attune" known to Hugging Face transformers (4.53 or newer).

        attune.torch.register_transformers()
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune", dtype="auto")

    (Before 4.56 `dtype` is `torch_dtype`.)

    Served are causal and full attention without padding, with grouped heads and without copies of
    them: prefill, prefill in chunks, and decoding with a cache that grows (DynamicCache). What is not
    served raises NotImplementedError where the mask is made or where attention is called, and names
    it: padding, packed sequences, masks of the caller's own, a StaticCache with room left, a sliding
    window shorter than the keys, dropout, soft caps, sinks, position biases, attention weights as a
    result. float32 queries, keys and values are cast inside torch.autocast, as sdpa casts them.

    There is no backward yet: call the model under torch.no_grad(), as generate() does. With
    torch.compile(fullgraph=True), leave attention_mask out and use a cache: whether a mask hides
    anything, or position_ids mark packed sequences, is read from their data.

    Raises:
        ImportError: transformers is missing, or is too old.
    """
    from . import _transformers

    _transformers.register()


def _require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__qualname__}; it must be a torch.Tensor")


def _unpack(name: str, packed: torch.Tensor, parts: int, rows: str) -> tuple[torch.Tensor, ...]:
    """Views of the parts of (*rows, parts, heads, head_dim)."""
    _require_tensor(name, packed)
    if packed.dim() != rows.count(",") + 4 or packed.shape[-3] != parts:
        raise ValueError(
            f"{name} has shape {tuple(packed.shape)}; it must be ({rows}, {parts}, heads, head_dim)"
        )
    return packed.unbind(-3)


def _window(window_size: Pair) -> tuple[int, int]:
    """What the operators take: two of Python's own integers."""
    if len(window_size) != 2:
        raise TypeError(f"window_size is {window_size}; it must be (left, right), two integers")
    left, right = window_size[0], window_size[1]
    if not isinstance(left, int):
        left = operator.index(left)
    if not isinstance(right, int):
        right = operator.index(right)
    return left, right
