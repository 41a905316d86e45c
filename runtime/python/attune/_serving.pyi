# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
from typing import Literal, overload

from ._arguments import Array, Pair

@overload
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
    return_softmax_lse: Literal[False] = False,
    *,
    out: Array | None = None,
    check_tables: bool = False,
    cu_seqlens_q: Array | None = None,
    max_seqlen_q: int | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """Attention to keys and values in a cache: decoding, and prompts that come in chunks.

    The arguments by position are flash-attn 2's; those by name alone are Attune's, or flash-attn 3's.

    Lengths and tables stay on the GPU: nothing waits for it, and a CUDA graph that captured the call
    serves what they hold when it is replayed. Call once with the same shapes before capturing.

    Up to 16 queries a sequence are decoding: kernels divide the keys of each sequence among the GPU's
    multiprocessors. More are served by the kernels of flash_attn_func, or of
    flash_attn_varlen_func with a block_table, after a kernel that stores the new keys; num_splits then
    has no effect.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16.
            Strides and alignment are those of flash_attn_func. Where head_dim is no multiple of 8,
            padded copies of q, k and v are made first, and the result is a view of their width.
        k_cache: (batch_cache, seqlen_cache, heads_kv, head_dim), where heads_kv divides heads_q and
            batch_cache is at least batch; or with a block_table (blocks, page_size, heads_kv,
            head_dim), of any page_size. Strides in any order, so that heads may come before tokens.
            A cache is never copied: where head_dim is no multiple of 8, its strides still are, as in
            cache[..., :59] of a cache with 64 columns, of which the last 5 are neither read nor
            written.
        v_cache: as k_cache.
        k: (batch, seqlen_new, heads_kv, head_dim): new keys, which are first written into the cache,
            after the cache_seqlens keys that each sequence has; None: none. Keys that a sequence has
            no room for are not written.
        v: as k.
        rotary_cos: (rotations, rotary_dim / 2), contiguous, of the dtype of q: the first rotary_dim
            columns, a multiple of 16, of the new keys and of the queries are rotated (rotary
            embedding). New key i has the row cache_seqlens + i; so has query i where causal or a
            window is given, and else every query has the row cache_seqlens. None: no rotation.
        rotary_sin: as rotary_cos.
        cache_seqlens: The keys that each sequence has in the cache, those of k apart: (batch,),
            int32, on the device of q, or one integer for all of them, or without k None for as many
            as the cache has room for. Keys beyond them are not read.
        cache_batch_idx: (batch,), int32, on the device of q: where in the cache each sequence is, or
            its row of the block_table, of which a wild one is taken for the nearest; None: in order.
        cache_leftpad: (batch,), int32, on the device of q: the place in the cache of each sequence's
            first key, where sequences are padded at the left. What is before it does not exist, though
            cache_seqlens counts it, and so do the rows of rotary_cos and the columns of a block_table;
            windows are aligned to the sequence's end all the same. None: 0.
        block_table: (batch, blocks of a sequence), int32, on the device of q: where the pages of
            each sequence are, in order. Entries beyond those of its keys are not read. Of lengths on
            the GPU that it holds no pages for only so many keys count; one integer is refused.
        softmax_scale: Finite, 0 or more. By default 1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q, as if the window's right were 0.
        window_size: (left, right): a query sees so many keys before and after its own position,
            which is i + seqlen_k - seqlen_q, where seqlen_k counts the new keys; -1: all.
        softcap: As in flash_attn_func.
        rotary_interleaved: Whether the columns 2i and 2i + 1 make a pair (GPT-J), or i and
            i + rotary_dim / 2 (GPT-NeoX, Llama).
        alibi_slopes: As in flash_attn_func.
        num_splits: Parts into which the keys of each sequence are divided, up to 256, so that the
            result does not depend on the other sequences. 0: as many as are fastest.
        return_softmax_lse: Also return the log-sum-exp of each row.
        out: Where to write the result, shaped like q, which is then this array; new memory by
            default.
        check_tables: Before anything is launched, check on the GPU that cache_seqlens and the tables
            lead nowhere outside the cache, cache_leftpad nowhere beyond cache_seqlens and cu_seqlens_q
            nowhere outside q, and wait for that: for debugging. Not while a CUDA graph is captured, nor
            with more than 16 queries a sequence.
        cu_seqlens_q: (batch + 1,), int32, on the device of q: a ragged batch, in which q is (total_q,
            heads_q, head_dim) and sequence i has its rows from cu_seqlens_q[i] up to
            cu_seqlens_q[i + 1]; rows of no sequence are not written. Without k. None: each sequence
            has as many queries.
        max_seqlen_q: With cu_seqlens_q: no sequence has more queries; at least 1 where q has rows.
        learnable_sink: As in flash_attn_func.

    Returns:
        An array like q; with return_softmax_lse a tuple (out, softmax_lse), where softmax_lse is
        (batch, heads_q, seqlen_q), or (heads_q, total_q) of a ragged batch, float32, natural logarithm.
        A query that sees no key gives zeros, and -inf in softmax_lse, or with a learnable_sink that logit.

    Raises:
        NotImplementedError: A JAX array, a PyTorch tensor that requires a gradient, or a GPU that no
            kernel serves; with more than 16 queries a sequence check_tables, or cache_leftpad where
            the pages of k_cache and v_cache are not the same whole number of rows apart.
        ValueError: With check_tables, the first entry that leads outside the cache; and what
            flash_attn_func raises it for.

    The other errors are those of flash_attn_func.

    Paper: Flash-Decoding, https://pytorch.org/blog/flash-decoding/; FlashAttention-2,
    https://arxiv.org/abs/2307.08691.
    """
@overload
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
    *,
    return_softmax_lse: Literal[True],
    out: Array | None = None,
    check_tables: bool = False,
    cu_seqlens_q: Array | None = None,
    max_seqlen_q: int | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array]: ...
@overload
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
) -> Array | tuple[Array, Array]: ...

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
    """Writes new keys and values into a cache, the keys rotated on their way (rotary embedding).

    Slots, lengths, tables and positions stay on the GPU, as with flash_attn_with_kvcache. None of
    them leads outside the cache: what they name there is not written. The new arrays and the cache
    must not overlap, and no two tokens may have one place.

    Args:
        k: (batch, tokens, heads_kv, head_dim), float16 or bfloat16, or with a slot_mapping also
            (tokens, heads_kv, head_dim). Strides and alignment are those of flash_attn_func.
        v: as k.
        k_cache: The cache as flash_attn_with_kvcache takes it, written in place; with a slot_mapping
            (blocks, page_size, heads_kv, head_dim), where page_size may be 1.
        v_cache: as k_cache.
        slot_mapping: (batch, tokens), or (tokens,) where k has no batch, int64 or int32, contiguous,
            on the device of k: block * page_size + place in the block of each token; a negative one is
            not written. One of (tokens,) may be shorter than k: tokens beyond it are not written.
            None: token i of a sequence becomes its key cache_seqlens + i.
        cache_seqlens: (batch,), int32, on the device of k: the keys that each sequence has already;
            None: none.
        cache_batch_idx: As in flash_attn_with_kvcache; not together with a slot_mapping.
        block_table: Likewise.
        positions: Shaped like slot_mapping, int32: the row of rotary_cos and rotary_sin for each
            token; None: cache_seqlens + i. A key beyond the last row is stored as it is.
        rotary_cos: (rotations, rotary_dim / 2), contiguous, of the dtype of k: the first rotary_dim
            columns of each key are rotated, a multiple of 16. None: keys are stored as they are.
        rotary_sin: as rotary_cos.
        rotary_interleaved: Whether the columns 2i and 2i + 1 make a pair (GPT-J), or i and
            i + rotary_dim / 2 (GPT-NeoX, Llama).
        check_tables: As in flash_attn_with_kvcache, of slot_mapping too.

    Raises:
        ValueError: A cache that is read-only, with check_tables an entry that leads outside the
            cache, and what flash_attn_func raises it for.

    The other errors are those of flash_attn_with_kvcache.

    Paper: RoFormer, https://arxiv.org/abs/2104.09864.
    """

@overload
def merge_attn_states(
    o1: Array,
    lse1: Array,
    o2: Array,
    lse2: Array,
    *,
    return_lse: Literal[False] = False,
    out: Array | None = None,
) -> Array:
    """Merges attention over some keys and attention over others into attention over all of them.

    So a prefix that many sequences share is attended to once for all of them.

    Of PyTorch tensors that require a gradient both results have one (2.4 or newer, through
    attune.torch), by o1, o2, lse1 and lse2; not where the result is written to out.

    Args:
        o1: (batch, seqlen, heads, head_dim), or (total, heads, head_dim) for the rows of all
            sequences, float16 or bfloat16. Strides and alignment are those of flash_attn_func.
        lse1: Its softmax_lse: (batch, heads, seqlen) or (heads, total), float32, contiguous, natural
            logarithm. Where it is -inf, o1 is not read.
        o2: as o1.
        lse2: as lse1.
        return_lse: Also return the merged log-sum-exp.
        out: Where to write the result, shaped like o1, which is then this array; new memory by
            default. It may be o1 or o2. Not where head_dim is no multiple of 8.

    Returns:
        An array like o1; with return_lse a tuple (out, lse).

    The errors are those of flash_attn_with_kvcache.

    Paper: section 2.2 of https://arxiv.org/abs/2501.01005.
    """
@overload
def merge_attn_states(
    o1: Array,
    lse1: Array,
    o2: Array,
    lse2: Array,
    *,
    return_lse: Literal[True],
    out: Array | None = None,
) -> tuple[Array, Array]: ...
@overload
def merge_attn_states(
    o1: Array,
    lse1: Array,
    o2: Array,
    lse2: Array,
    *,
    return_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]: ...
