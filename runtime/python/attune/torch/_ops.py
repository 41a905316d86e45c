"""The operators attune::flash_attn and its siblings, registered with PyTorch.

Tensors are those of attune's functions, and so are the errors: the implementations are those functions.
Names, arguments and defaults are those of the schemas, which the list of functions gives.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .. import (
    apply_rotary,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    merge_attn_states,
    store_kvcache,
)
from .._functions import SCHEMAS
from . import _fakes

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


def _merge(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = merge_attn_states(o1, lse1, o2, lse2, return_lse=True)
    return result[0], result[1]


def _rotary(
    q: torch.Tensor,
    k: torch.Tensor | None,
    rotary_cos: torch.Tensor,
    rotary_sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    seqlen_offsets: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
) -> None:
    apply_rotary(
        q,
        k,
        rotary_cos,
        rotary_sin,
        positions=positions,
        seqlen_offsets=seqlen_offsets,
        rotary_interleaved=rotary_interleaved,
    )


def _refuse_transforms(*_: Any) -> NoReturn:
    raise NotImplementedError(
        "attune's attention does not support the transforms of torch.func (vmap, grad, jvp, ...) yet"
    )


def _register(name: str, attention: Any, fake: Any) -> Any:
    _library.define(SCHEMAS[name], tags=_tags)
    # Every backend: what is no CUDA tensor is then refused by name.
    _library.impl(name, attention, "CompositeExplicitAutograd")
    # The implementation refuses gradients. A kernel here that did so would add 3 us to each call.
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    # Without it a transform would loop over a batch, or take the result for a constant.
    _library.impl(name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    return getattr(torch.ops.attune, name).default


flash_attn = _register("flash_attn", _attention, _fakes.attention)
flash_attn_lse = _register("flash_attn_lse", _attention_lse, _fakes.attention_lse)
varlen = _register("flash_attn_varlen", _varlen, _fakes.attention_lse)
cached = _register("flash_attn_with_kvcache", _cached, _fakes.cached)
appended = _register("flash_attn_with_kvcache_append", _appended, _fakes.appended)
store = _register("store_kvcache", _store, _fakes.store)
merge = _register("merge_attn_states", _merge, _fakes.merge)
rotary = _register("apply_rotary", _rotary, _fakes.rotary)
