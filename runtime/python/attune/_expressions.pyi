# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
from collections.abc import Mapping
from typing import Literal, overload

from ._arguments import Array, Pair
from ._texts import Expression

@overload
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
    return_lse: Literal[False] = False,
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
) -> Array:
    """Attention whose scores and masks are expressions: softmax(score(scale * q @ k.T), mask) @ v.

    A new expression is a kernel of its own, which is compiled at the first call and kept on disk.

        attune.attention(q, k, v, score="s + slope[h] * (k - p)", mask="k <= p", params={"slope": slopes})
        attune.attention(q, k, v, mask=lambda k, p, b, doc: (k <= p) & (doc[b, p] == doc[b, k]),
                         params={"doc": documents})

    Which keys there are follows from the arguments, and the same expression means the same in each
    case: a dense batch; with cu_seqlens_q a ragged one, as flash_attn_varlen_func takes it, also to keys
    in pages (block_table); with cache_seqlens to a cache, as flash_attn_with_kvcache takes it,
    contiguous or in pages, with new keys, rotations and ragged queries.

    Of dense and ragged batches the result has gradients by q, k, v and learnable_sink, and so has the
    log-sum-exp: those of PyTorch tensors that require one (2.4 or newer, through attune.torch). The score
    then only adds to s, without softcap: it is s plus a term without s, or a select between such sums
    (or -inf) whose condition has no s. Masks may be any.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, as flash_attn_func takes it; of
            a ragged batch (total_q, heads_q, head_dim).
        k: (batch, seqlen_k, heads_kv, head_dim), (total_k, heads_kv, head_dim), or a cache.
        v: as k.
        score: What a score becomes, a text or a function: of s, the scaled score; q, the query's row in
            its sequence; p, its position among the keys, q + seqlen_k - seqlen_q; k, the key's position
            in its sequence; h and hk, the heads of q and of k; b, the sequence; and of parameters, by
            their names. Arithmetic + - * / // %, comparisons, and, or, not, min, max, abs, exp2, log2,
            tanh, real(integer), select(condition, yes, no), inf. A function takes some of these by name
            and writes & | ~ for and, or, not; attune.select and others are its functions. A score of -inf
            is a key that is not seen; a mask says the same faster, as it leaves blocks of keys unread. Up
            to 2048 operations, numbers and names in 16384 characters, 48 parentheses, calls and indices
            inside of each other; sums, products, `and` and `or` of many terms are not nested.
        mask: Which keys a query sees of those that causal and window_size leave it, without s.
        params: Arrays that expressions look up by name, float32 or int32, contiguous, on q's device. A
            dimension that is indexed by a name alone is counted by it (h: heads_q, hk: heads_kv, b:
            batch, q: at least seqlen_q, p and k: at least seqlen_k, of a cache its room) in score and
            mask alike, and by one (of q beside p or k by these); others have the extent that the array
            has. An index beyond an extent counts as the nearest inside. No gradient goes through them.
        softmax_scale: As flash_attn_func takes it, and so are the three that follow.
        causal: The mask up to the query's own position.
        window_size: (left, right).
        softcap: A cap on scores, before the expression.
        return_lse: Also return the log-sum-exp, (batch, heads_q, seqlen_q), of a ragged batch
            (heads_q, total_q).
        cu_seqlens_q: As flash_attn_varlen_func takes it, and so are the six that follow.
        cu_seqlens_k: None with a cache, or with seqused_k and pages.
        max_seqlen_q: Needed with cu_seqlens_q.
        max_seqlen_k: Needed with cu_seqlens_q, but of a cache.
        seqused_q: None: all.
        seqused_k: None: all.
        block_table: Where the pages of each sequence are.
        cache_seqlens: As flash_attn_with_kvcache takes it, and so is what follows, with new keys and values
            by the names k_new and v_new.
        cache_batch_idx: Where in the cache each sequence is.
        cache_leftpad: Where each sequence begins; p and k count from there.
        k_new: Keys to append, (batch, seqlen_new, heads_kv, head_dim).
        v_new: As k_new.
        rotary_cos: Their rotation.
        rotary_sin: As rotary_cos.
        rotary_interleaved: Which columns make a pair.
        num_splits: Parts of the keys of each sequence.
        learnable_sink: As flash_attn_func takes it, and so is deterministic.
        deterministic: Of gradients.

    Returns:
        An array like q, or a tuple (out, lse). A query that sees no key gives zeros, and an lse of -inf,
        or with a learnable_sink that logit.

    Raises:
        ValueError: What is wrong in an expression, with its column; an array that is missing or has another
            shape; arguments that do not go together.
        TypeError: An array of another dtype or framework.
        NotImplementedError: A gradient of a cache, of parameters, or by a score that does more than add to s;
            JAX arrays that are ragged or a cache; what no kernel serves.
    """
@overload
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
    return_lse: Literal[True],
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
) -> tuple[Array, Array]: ...
@overload
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
) -> Array | tuple[Array, Array]: ...
