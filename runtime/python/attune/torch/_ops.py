"""The operators attune::flash_attn and its siblings, registered with PyTorch.

Tensors are those of attune's functions, and so are the errors: the implementations are those functions.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .. import (
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    merge_attn_states,
    store_kvcache,
)

# Inductor may otherwise hand over another layout than the one that was traced.
_tags = (
    torch.Tag.pt2_compliant_tag,
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)
# define and impl cost a call 2 us, torch.library.custom_op 7.
_library = torch.library.Library("attune", "DEF")


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
) -> torch.Tensor:
    return flash_attn_func(
        q,
        k,
        v,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
    )


def _attention_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_func(
        q,
        k,
        v,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        return_attn_probs=True,
    )
    return result[0], result[1]


def _fake_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    _refuse_gradients(q=q, k=k, v=v)
    head_dim_v = v.shape[-1]
    if q.shape[-1] % 8 != 0 or head_dim_v % 8 != 0:
        return _padded(q, head_dim_v)
    return (
        torch.empty_like(q)
        if head_dim_v == q.shape[-1]
        else q.new_empty((*q.shape[:-1], head_dim_v))
    )


def _padded(q: torch.Tensor, head_dim_v: int) -> torch.Tensor:
    """What comes of padded copies: a view of their width."""
    return q.new_empty((*q.shape[:-1], -(-head_dim_v // 8) * 8))[..., :head_dim_v]


def _fake_attention_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _fake_attention(q, k, v)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    return out, lse


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    seqused_q: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        return_attn_probs=True,
        block_table=block_table,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
    )
    return result[0], result[1]


def _fake_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return _fake_attention(q, k, v), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _cached(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor | None = None,
    seqlen_k: int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    num_splits: int = 0,
    check_tables: bool = False,
    cu_seqlens_q: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    cache_leftpad: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        cache_seqlens=seqlen_k if cache_seqlens is None else cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        block_table=block_table,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        num_splits=num_splits,
        return_softmax_lse=True,
        check_tables=check_tables,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
    )
    return result[0], result[1]


def _appended(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | None = None,
    seqlen_k: int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    num_splits: int = 0,
    check_tables: bool = False,
    cache_leftpad: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k=k,
        v=v,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_seqlens=seqlen_k if cache_seqlens is None else cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        block_table=block_table,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        rotary_interleaved=rotary_interleaved,
        num_splits=num_splits,
        return_softmax_lse=True,
        check_tables=check_tables,
    )
    return result[0], result[1]


def _fake_appended(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(k=k, v=v)
    return _fake_cached(q, k_cache, v_cache)


def _fake_cached(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache)
    *batch, rows, heads, _head_dim = q.shape  # of a ragged batch there is none
    return torch.empty_like(q), q.new_empty((*batch, heads, rows), dtype=torch.float32)


def _store(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
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
    store_kvcache(
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping=slot_mapping,
        cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        block_table=block_table,
        positions=positions,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        rotary_interleaved=rotary_interleaved,
        check_tables=check_tables,
    )


def _fake_store(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *_: Any,
    **__: Any,
) -> None:
    _refuse_gradients(k=k, v=v, k_cache=k_cache, v_cache=v_cache)


def _merge(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = merge_attn_states(o1, lse1, o2, lse2, return_lse=True)
    return result[0], result[1]


def _fake_merge(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(o1=o1, lse1=lse1, o2=o2, lse2=lse2)
    head_dim = o1.shape[-1]
    out = torch.empty_like(o1) if head_dim % 8 == 0 else _padded(o1, head_dim)
    return out, lse1.new_empty(lse1.shape)


def _refuse_gradients(**tensors: torch.Tensor) -> None:
    """Of a fake: a compiled graph runs its operators on detached tensors, so it is there that gradients are seen."""
    for name, tensor in tensors.items():
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{name} requires a gradient, and there is no backward yet; "
                "call it under torch.no_grad() where none is needed"
            )


def _refuse_transforms(*_: Any) -> NoReturn:
    raise NotImplementedError(
        "attune's attention does not support the transforms of torch.func (vmap, grad, jvp, ...) yet"
    )


def _register(name: str, arguments: str, result: str, attention: Any, fake: Any) -> Any:
    _library.define(f"{name}({arguments}) -> {result}", tags=_tags)
    # Every backend: what is no CUDA tensor is then refused by name.
    _library.impl(name, attention, "CompositeExplicitAutograd")
    # The implementation refuses gradients. A kernel here that did so would add 3 us to each call.
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    # Without it a transform would loop over a batch, or take the result for a constant.
    _library.impl(name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    return getattr(torch.ops.attune, name).default


_OPTIONS = (
    "float? softmax_scale=None, bool causal=False, int window_left=-1, int window_right=-1, "
    "float softcap=0.0"
)
_ARGUMENTS = f"Tensor q, Tensor k, Tensor v, {_OPTIONS}"
_WITH_LSE = "(Tensor out, Tensor softmax_lse)"
flash_attn = _register("flash_attn", _ARGUMENTS, "Tensor", _attention, _fake_attention)
flash_attn_lse = _register(
    "flash_attn_lse", _ARGUMENTS, _WITH_LSE, _attention_lse, _fake_attention_lse
)
varlen = _register(
    "flash_attn_varlen",
    "Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q, "
    f"SymInt max_seqlen_k, Tensor? seqused_k=None, Tensor? block_table=None, {_OPTIONS}, "
    "Tensor? seqused_q=None",
    _WITH_LSE,
    _varlen,
    _fake_varlen,
)
cached = _register(
    "flash_attn_with_kvcache",
    "Tensor q, Tensor k_cache, Tensor v_cache, Tensor? cache_seqlens=None, SymInt? seqlen_k=None, "
    "Tensor? cache_batch_idx=None, Tensor? block_table=None, float? softmax_scale=None, "
    "bool causal=False, int window_left=-1, int window_right=-1, float softcap=0.0, "
    "int num_splits=0, bool check_tables=False, Tensor? cu_seqlens_q=None, "
    "SymInt? max_seqlen_q=None, Tensor? cache_leftpad=None",
    _WITH_LSE,
    _cached,
    _fake_cached,
)
# An operator of its own: one that may write into its cache has torch.compile take it for one that does.
appended = _register(
    "flash_attn_with_kvcache_append",
    "Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, "
    "Tensor? rotary_cos=None, Tensor? rotary_sin=None, Tensor? cache_seqlens=None, "
    "SymInt? seqlen_k=None, Tensor? cache_batch_idx=None, Tensor? block_table=None, "
    "float? softmax_scale=None, bool causal=False, int window_left=-1, int window_right=-1, "
    "float softcap=0.0, bool rotary_interleaved=True, int num_splits=0, bool check_tables=False, "
    "Tensor? cache_leftpad=None",
    _WITH_LSE,
    _appended,
    _fake_appended,
)
store = _register(
    "store_kvcache",
    "Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? slot_mapping=None, "
    "Tensor? cache_seqlens=None, Tensor? cache_batch_idx=None, Tensor? block_table=None, "
    "Tensor? positions=None, Tensor? rotary_cos=None, Tensor? rotary_sin=None, "
    "bool rotary_interleaved=True, bool check_tables=False",
    "()",
    _store,
    _fake_store,
)
merge = _register(
    "merge_attn_states",
    "Tensor o1, Tensor lse1, Tensor o2, Tensor lse2",
    "(Tensor out, Tensor lse)",
    _merge,
    _fake_merge,
)
