"""The operators attune::flash_attn and its siblings, registered with PyTorch.

Tensors are those of attune's functions, and so are the errors: the implementations are those functions.
Names, arguments and defaults are those of the schemas, which the list of functions gives.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .. import (
    apply_rotary,
    flash_attn_backward,
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
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> torch.Tensor:
    return flash_attn_func(
        q,
        k,
        v,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
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
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_func(
        q,
        k,
        v,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
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
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
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
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
        return_attn_probs=True,
        block_table=block_table,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
    )
    return result[0], result[1]


def _train(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool | None = None,
    dropout_p: float = 0.0,
    rng_state: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_func(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
        return_attn_probs=True,
        rng_state=rng_state,
    )
    return result[0], result[1]


def _varlen_train(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool | None = None,
    dropout_p: float = 0.0,
    rng_state: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    result: Any = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
        return_attn_probs=True,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        rng_state=rng_state,
    )
    return result[0], result[1]


def _backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dsoftmax_lse: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    rng_state: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return flash_attn_backward(
        _readable(dout),
        q,
        k,
        v,
        out,
        softmax_lse,
        dsoftmax_lse=None if dsoftmax_lse is None else dsoftmax_lse.contiguous(),
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_left, window_right),
        softcap=softcap,
        deterministic=deterministic,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        dropout_p=dropout_p,
        rng_state=rng_state,
    )


def _readable(dout: torch.Tensor) -> torch.Tensor:
    """A gradient as kernels read it: autograd makes them of any layout, expanded scalars too."""
    strides = dout.stride()
    if strides[-1] == 1 and not any(s % 8 for s in strides[:-1]) and dout.data_ptr() % 16 == 0:
        return dout
    return dout.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Keeps what the gradients of _train take."""
    q, k, v, *ctx.options, ctx.dropout_p, rng_state, _no_slopes, _no_sink = inputs
    ctx.save_for_backward(q, k, v, *output, rng_state)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, dout: torch.Tensor | None, dsoftmax_lse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, out, softmax_lse, rng_state = ctx.saved_tensors
    others = (None,) * (len(ctx.options) + 4)
    if dout is None and dsoftmax_lse is None:
        return None, None, None, *others
    _refuse_second_derivatives()
    dout = torch.zeros_like(out) if dout is None else dout
    gradients = backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dsoftmax_lse,
        *ctx.options,
        dropout_p=ctx.dropout_p,
        rng_state=rng_state,
    )
    return *gradients, *others


def _refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():  # create_graph=True: gradients of these gradients are wanted
        raise NotImplementedError(
            "attention has no second derivatives; differentiate it without create_graph=True"
        )


def _varlen_keep(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Keeps what the gradients of _varlen_train take."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, *ctx.longest, seqused_q, seqused_k = inputs[:9]
    *ctx.options, ctx.dropout_p, rng_state, _no_slopes, _no_sink = inputs[9:]
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    ctx.save_for_backward(q, k, v, *output, *lengths, rng_state)
    ctx.set_materialize_grads(False)


def _varlen_differentiate(
    ctx: Any, dout: torch.Tensor | None, dsoftmax_lse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, out, softmax_lse, *lengths, rng_state = ctx.saved_tensors
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k = lengths
    others = (None,) * (10 + len(ctx.options))
    if dout is None and dsoftmax_lse is None:
        return None, None, None, *others
    _refuse_second_derivatives()
    gradients = backward(
        torch.zeros_like(out) if dout is None else dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dsoftmax_lse,
        *ctx.options,
        cu_seqlens_q,
        cu_seqlens_k,
        *ctx.longest,
        seqused_q,
        seqused_k,
        ctx.dropout_p,
        rng_state,
    )
    return *gradients, *others


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
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
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
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
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
    alibi_slopes: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
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
        alibi_slopes=alibi_slopes,
        learnable_sink=learnable_sink,
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


def _merge_keep(
    ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Keeps what the gradients of a merge take."""
    ctx.save_for_backward(*inputs, *output)
    ctx.set_materialize_grads(False)


def _merge_differentiate(
    ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    o1, lse1, o2, lse2, *merged = ctx.saved_tensors
    if dout is None and dlse is None:
        return None, None, None, None
    gradients = (dout, dlse)
    return *_of_state(o1, lse1, *merged, *gradients), *_of_state(o2, lse2, *merged, *gradients)


def _of_state(
    o: torch.Tensor,
    lse: torch.Tensor,
    merged: torch.Tensor,
    merged_lse: torch.Tensor,
    dout: torch.Tensor | None,
    dlse: torch.Tensor | None,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The gradients of a merge by one of its states, which has the share exp(lse - merged_lse) of it."""
    counts = lse.isfinite()  # elsewhere o may hold anything, and dlse may be no number
    share = torch.where(counts, (lse - merged_lse).exp(), 0)
    grown = torch.zeros_like(lse) if dlse is None else torch.where(counts, dlse, 0)
    if dout is None:
        return None, share * grown
    rows = share.transpose(-1, -2)[..., None]
    apart = torch.where(counts.transpose(-1, -2)[..., None], o.float() - merged.float(), 0)
    grown = grown + (dout.float() * apart).sum(-1).transpose(-1, -2)
    return (rows * dout.float()).to(o.dtype), share * grown


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


def register(
    name: str, schema: str, attention: Any, fake: Any, differentiate: Any = None, keep: Any = None
) -> Any:
    """Defines an operator; returns what calls it."""
    _library.define(schema, tags=_tags)
    # Every backend: what is no CUDA tensor is then refused by name.
    _library.impl(name, attention, "CompositeExplicitAutograd")
    if differentiate is None:
        # The implementation refuses gradients. A kernel here that did so would add 3 us to each call.
        _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    else:
        torch.library.register_autograd(
            f"attune::{name}", differentiate, setup_context=keep, lib=_library
        )
    # Without it a transform would loop over a batch, or take the result for a constant.
    _library.impl(name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    return getattr(torch.ops.attune, name).default


def _register(
    name: str, attention: Any, fake: Any, differentiate: Any = None, keep: Any = None
) -> Any:
    """The same of an operator of the list of functions."""
    return register(name, SCHEMAS[name], attention, fake, differentiate, keep)


flash_attn = _register("flash_attn", _attention, _fakes.attention)
flash_attn_lse = _register("flash_attn_lse", _attention_lse, _fakes.attention_lse)
varlen = _register("flash_attn_varlen", _varlen, _fakes.attention_lse)
train = _register(
    "flash_attn_train", _train, _fakes.train, differentiate=_differentiate, keep=_keep
)
varlen_train = _register(
    "flash_attn_varlen_train",
    _varlen_train,
    _fakes.train,
    differentiate=_varlen_differentiate,
    keep=_varlen_keep,
)
backward = _register("flash_attn_backward", _backward, _fakes.backward)
cached = _register("flash_attn_with_kvcache", _cached, _fakes.cached)
appended = _register("flash_attn_with_kvcache_append", _appended, _fakes.appended)
store = _register("store_kvcache", _store, _fakes.store)
merge = _register("merge_attn_states", _merge, _fakes.merge)
merge_train = _register(
    "merge_attn_states_train",
    _merge,
    _fakes.merge_train,
    differentiate=_merge_differentiate,
    keep=_merge_keep,
)
rotary = _register("apply_rotary", _rotary, _fakes.rotary)
