"""What serving does with a K/V cache, over the C ABI."""

from __future__ import annotations

from . import _attune
from ._arguments import Array, GradientWanted, Pair
from ._functions import documented
from ._gradients import differentiable


@documented
def flash_attn_with_kvcache(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    k: Array | None = None,
    v: Array | None = None,
    rotary_cos: Array | None = None,
    rotary_sin: Array | None = None,
    cache_seqlens: int | Array | None = None,
    cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None,
    block_table: Array | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Array | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    out: Array | None = None,
    check_tables: bool = False,
    cu_seqlens_q: Array | None = None,
    max_seqlen_q: int | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array]:
    result: Array | tuple[Array, Array] = _attune.decode(
        q,
        k_cache,
        v_cache,
        k,
        v,
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
        alibi_slopes,
        num_splits,
        return_softmax_lse,
        out,
        check_tables,
        cu_seqlens_q,
        max_seqlen_q,
        learnable_sink,
    )
    return result


@documented
def store_kvcache(
    k: Array,
    v: Array,
    k_cache: Array,
    v_cache: Array,
    *,
    slot_mapping: Array | None = None,
    cache_seqlens: Array | None = None,
    cache_batch_idx: Array | None = None,
    block_table: Array | None = None,
    positions: Array | None = None,
    rotary_cos: Array | None = None,
    rotary_sin: Array | None = None,
    rotary_interleaved: bool = True,
    check_tables: bool = False,
) -> None:
    _attune.store(
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


@documented
def merge_attn_states(
    o1: Array,
    lse1: Array,
    o2: Array,
    lse2: Array,
    *,
    return_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    try:
        result: Array | tuple[Array, Array] = _attune.merge(o1, lse1, o2, lse2, return_lse, out)
    except GradientWanted:
        if out is not None:
            raise
        return differentiable("merge_attn_states", o1, lse1, o2, lse2, return_lse=return_lse)
    return result
