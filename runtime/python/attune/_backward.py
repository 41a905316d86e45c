"""The gradients of attention over the C ABI."""

from __future__ import annotations

from collections.abc import Mapping

from . import _attune
from ._arguments import Array, Pair
from ._functions import documented
from ._texts import Expression, arrays_of, complete


@documented
def flash_attn_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    softmax_lse: Array,
    *,
    dsoftmax_lse: Array | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    dropout_p: float = 0.0,
    rng_state: Array | None = None,
    alibi_slopes: Array | None = None,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Array] | None = None,
) -> tuple[Array, Array, Array]:
    arrays = arrays_of(params)
    result: tuple[Array, Array, Array] = _attune.backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dsoftmax_lse,
        softmax_scale,
        causal,
        window_size,
        softcap,
        deterministic,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_q,
        seqused_k,
        dropout_p,
        rng_state,
        alibi_slopes,
        *complete(score, mask, arrays),
        None if params is None else arrays,
    )
    return result
