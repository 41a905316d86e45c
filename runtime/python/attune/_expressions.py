"""Attention whose scores and masks are expressions: texts, or Python functions that are traced into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import _attune
from ._arguments import Array, GradientWanted, Pair
from ._tracing import parameters_read, trace

_DTYPES = {"float32": "fp32", "int32": "int32"}

Expression = str | Callable[..., Any]


def text_of(expression: Expression | None, params: Mapping[str, Any]) -> str | None:
    """A text as it is, a function traced."""
    if expression is None or isinstance(expression, str):
        return expression
    return trace(expression, tuple(params))


def complete(expression: Expression | None, params: Mapping[str, Any]) -> str | None:
    """The text with a `where` for each parameter that it reads."""
    text = text_of(expression, params)
    if text is None:
        return None
    declared = []
    # What is no array the binding names.
    ranks = tuple((name, len(one.shape)) for name, one in params.items() if hasattr(one, "shape"))
    for name, counted in parameters_read(text, ranks):
        array = params[name]
        dtype = _DTYPES.get(str(array.dtype).rpartition(".")[2])
        if dtype is None:
            raise TypeError(
                f"params[{name!r}] has dtype {array.dtype}; it must be float32 or int32"
            )
        per = [one or str(int(array.shape[i])) for i, one in enumerate(counted)]
        declared.append(f"{name}: {dtype}[{', '.join(per)}]")
    return f"{text} where {', '.join(declared)}" if declared else text


def refuse_together(given: Mapping[str, Any], without: str) -> None:
    """Throws where one of these arguments is given, of a call that `without` says."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given {without}")


#: What arguments belong to calls of another kind.
OF_RAGGED = "without cu_seqlens_q, which makes a batch ragged"
OF_CACHE = "without cache_seqlens, which makes k and v a cache"
NOT_OF_CACHE = "with cache_seqlens, which says how many keys a cache has"


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Any] | None = None,
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
) -> Array | tuple[Array, Array]:
    """Attention whose scores and masks are expressions: softmax(score(softmax_scale * q @ k.T), mask) @ v.

    A new expression is a kernel of its own, which is compiled at the first call and kept on disk.

        attune.attention(q, k, v, score="s + slope[h] * (k - p)", mask="k <= p", params={"slope": slopes})
        attune.attention(q, k, v, mask=lambda k, p, b, doc: (k <= p) & (doc[b, p] == doc[b, k]), params={"doc": ids})

    Which keys there are follows from the arguments, and the same expression means the same in each case: a dense batch;
    with cu_seqlens_q a ragged one, as flash_attn_varlen_func takes it, also to keys in pages (block_table); with
    cache_seqlens to a cache, as flash_attn_with_kvcache takes it, contiguous or in pages, with new keys, rotations and
    ragged queries.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, as flash_attn_func takes it; of a ragged batch
            (total_q, heads_q, head_dim).
        k: (batch, seqlen_k, heads_kv, head_dim), (total_k, heads_kv, head_dim), or a cache.
        v: As k.
        score: What a score becomes, a text or a function: of s, the scaled score; q, the query's row in its sequence;
            p, its position among the keys, q + seqlen_k - seqlen_q; k, the key's position in its sequence; h and hk,
            the heads of q and of k; b, the sequence; and of parameters, by their names. Arithmetic + - * / // %,
            comparisons, and, or, not, min, max, abs, exp2, log2, tanh, select(condition, yes, no). A function takes
            some of these by name and writes & | ~ for and, or, not; attune.select and others are its functions.
        mask: Which keys a query sees of those that causal and window_size leave it, without s.
        params: Arrays that expressions look up by name, float32 or int32, contiguous, on q's device. A dimension
            that is indexed by a name alone is counted by it (h: heads_q, hk: heads_kv, b: batch, q: at least seqlen_q,
            p and k: at least seqlen_k, of a cache its room); others have the extent that the array has. An index beyond
            an extent counts as the nearest inside.
        softmax_scale: As flash_attn_func takes it, and so are the three that follow.
        causal: The mask up to the query's own position.
        window_size: (left, right).
        softcap: A cap on scores, before the expression.
        return_lse: Also return the log-sum-exp, (batch, heads_q, seqlen_q), of a ragged batch (heads_q, total_q).
        cu_seqlens_q: As flash_attn_varlen_func takes it, and so are the six that follow.
        cu_seqlens_k: None with a cache, or with seqused_k and pages.
        max_seqlen_q: Needed with cu_seqlens_q.
        max_seqlen_k: Needed with cu_seqlens_q, but of a cache.
        seqused_q: None: all.
        seqused_k: None: all.
        block_table: Where the pages of each sequence are.
        cache_seqlens: As flash_attn_with_kvcache takes it, and so is what follows, with new keys and values by the names
            k_new and v_new.
        cache_batch_idx: Where in the cache each sequence is.
        cache_leftpad: Where each sequence begins; p and k count from there.
        k_new: Keys to append, (batch, seqlen_new, heads_kv, head_dim).
        v_new: As k_new.
        rotary_cos: Their rotation.
        rotary_sin: As rotary_cos.
        rotary_interleaved: Which columns make a pair.
        num_splits: Parts of the keys of each sequence.
        learnable_sink: As flash_attn_func takes it.

    Returns:
        An array like q, or a tuple (out, lse). A query that sees no key gives zeros, and an lse of -inf.

    Raises:
        ValueError: What is wrong in an expression, with its column; an array that is missing or has another shape;
            arguments that do not go together.
        TypeError: An array of another dtype or framework.
        NotImplementedError: A tensor that requires a gradient, as kernels with expressions have no backward pass;
            a JAX array; what no kernel serves.
    """
    arrays = dict(params or {})
    texts = (complete(score, arrays), complete(mask, arrays), arrays)
    lengths = {"max_seqlen_k": max_seqlen_k, "seqused_q": seqused_q, "seqused_k": seqused_k}
    of_cache = {
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "k_new": k_new,
        "v_new": v_new,
        "rotary_cos": rotary_cos,
        "rotary_sin": rotary_sin,
        "num_splits": num_splits or None,
    }
    options = (0.0, softmax_scale, causal, window_size, softcap, None, return_lse)
    try:
        if cache_seqlens is not None:
            refuse_together({"cu_seqlens_k": cu_seqlens_k, **lengths}, NOT_OF_CACHE)
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
            refuse_together(of_cache, OF_CACHE)
            longest = (max_seqlen_q, max_seqlen_k)
            used = (seqused_q, seqused_k, None, None, learnable_sink)
            result = _attune.expressed_varlen(
                q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, *options, block_table, *used, *texts
            )
        else:
            refuse_together(of_cache, OF_CACHE)
            ragged = {"cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q, **lengths}
            refuse_together({**ragged, "block_table": block_table}, OF_RAGGED)
            result = _attune.expressed_attention(q, k, v, *options, None, learnable_sink, *texts)
    except GradientWanted:
        raise NotImplementedError(
            "a tensor requires a gradient; attention with expressions has no backward pass yet: "
            "call it under torch.no_grad(), or detach q, k and v"
        ) from None
    return (result[0], result[1]) if return_lse else result
