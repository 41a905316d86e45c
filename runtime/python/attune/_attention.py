"""flash-attn 2's functions over the C ABI."""

from __future__ import annotations

from typing import Any, TypeVar

from . import _attune

Array = TypeVar("Array")  # torch.Tensor, cupy.ndarray, jax.Array or numpy.ndarray


def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """softmax(softmax_scale * q @ k.T + mask) @ v, for each batch and head.

    Grouped and multi-query attention: k and v may have fewer heads than q; query head i then uses
    head i // (heads_q / heads_kv) of them.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16. head_dim is a multiple of 8 up
            to 256 and contiguous; the other strides are multiples of 8 elements in any order, and
            the first element is aligned to 16 bytes.
        k: (batch, seqlen_k, heads_kv, head_dim), where heads_kv divides heads_q; framework, device
            and dtype are those of q.
        v: as k, but its head_dim may be another one on GPUs of compute capability 9.0: 192 and 128
            have a kernel of their own, which serves what is smaller too.
        dropout_p: Only 0 is served.
        softmax_scale: Finite, 0 or more, and under jax.jit no traced value. By default
            1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom
            right. A query that sees no key gives zeros.
        window_size: Only (-1, -1), no window, is served.
        softcap: Only 0, no cap, is served.
        alibi_slopes: Only None is served.
        deterministic: Either: the same inputs on the same device give the same bits.
        return_attn_probs: Also return the log-sum-exp of each row.

    Returns:
        An array like q, with the head_dim of v. With return_attn_probs a tuple (out, softmax_lse, None) as flash-attn has
        it without dropout: softmax_lse is (batch, heads_q, seqlen_q), float32, natural logarithm,
        and -inf (flash-attn 2: +inf) where a query sees no key.

    Raises:
        TypeError: An array of no known framework, of another one than q, or of a dtype that is not
            served; a scale that is no number.
        ValueError: A shape, stride, alignment, device or scale that is not accepted.
        NotImplementedError: An argument, a shape or a GPU that no kernel serves yet; a PyTorch or
            JAX array that requires a gradient; a JAX array on several devices.
        RuntimeError: No GPU, or the driver or a compiler failed; the emulator found a fault. From
            JAX also what else it meets only when it runs the kernel: a GPU that is not served.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    return _attune.attention(q, k, v, softmax_scale, causal, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """flash_attn_func of keys and values in one array, without a copy.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim).
        kv: (batch, seqlen_k, 2, heads_kv, head_dim): keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    return _attune.attention_kvpacked(q, kv, softmax_scale, causal, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """flash_attn_func of queries, keys and values in one array, without a copy.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim): queries, keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    return _attune.attention_qkvpacked(qkv, softmax_scale, causal, return_attn_probs)


def flash_attn_with_kvcache(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    *,
    cache_seqlens: int | Array | None = None,
    cache_batch_idx: Array | None = None,
    block_table: Array | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Attention of a few queries of each sequence to keys and values in a cache: decoding.

    Lengths and tables stay on the GPU: nothing waits for it, and a CUDA graph that captured the call
    serves what they hold when it is replayed. Call once with the same shapes before capturing.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, where seqlen_q is at most 16.
            head_dim, strides and alignment are those of flash_attn_func.
        k_cache: (batch_cache, seqlen_cache, heads_kv, head_dim), where heads_kv divides heads_q and
            batch_cache is at least batch; or with a block_table (blocks, page_size, heads_kv,
            head_dim), of any page_size. Strides in any order, so that heads may come before tokens.
        v_cache: as k_cache.
        cache_seqlens: The keys of each sequence, new ones included: (batch,), int32, on the device of
            q, or one integer for all of them, or None for as many as the cache has room for. Keys
            behind them are not read.
        cache_batch_idx: (batch,), int32, on the device of q: where in the cache each sequence is;
            None: in order. Not together with a block_table.
        block_table: (batch, blocks of a sequence), int32, on the device of q: where the pages of
            each sequence are, in order. What is behind those of its keys is not read.
        softmax_scale: Finite, 0 or more. By default 1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q, as if the window's right were 0.
        window_size: (left, right): a query sees so many keys before and behind its own position,
            which is i + seqlen_k - seqlen_q; -1: all.
        num_splits: Parts into which the keys of each sequence are divided, up to 256, so that the
            result does not depend on the other sequences. 0: what keeps the GPU busy.
        return_softmax_lse: Also return the log-sum-exp of each row.
        out: Where to write the result, shaped like q; new memory by default.

    Returns:
        An array like q, which is out if that was given; with return_softmax_lse a tuple
        (out, softmax_lse), where softmax_lse is (batch, heads_q, seqlen_q), float32, natural
        logarithm. A query that sees no key gives zeros, and -inf in softmax_lse.

    Raises:
        NotImplementedError: A JAX array, a PyTorch tensor that requires a gradient, or a GPU that no
            kernel serves.

    The other errors are those of flash_attn_func.

    Paper: Flash-Decoding, https://pytorch.org/blog/flash-decoding/; FlashAttention-2,
    https://arxiv.org/abs/2307.08691.
    """
    result: Array | tuple[Array, Array] = _attune.decode(
        q,
        k_cache,
        v_cache,
        cache_seqlens,
        cache_batch_idx,
        block_table,
        softmax_scale,
        causal,
        window_size,
        num_splits,
        return_softmax_lse,
        out,
    )
    return result


def _refuse_unserved(
    dropout_p: float, window_size: tuple[int, int], softcap: float, alibi_slopes: Any
) -> None:
    if dropout_p != 0:
        raise NotImplementedError(f"dropout_p is {dropout_p}; only 0 is served yet")
    if window_size not in ((-1, -1), [-1, -1]):
        raise NotImplementedError(f"window_size is {window_size}; only (-1, -1) is served yet")
    if softcap != 0:
        raise NotImplementedError(f"softcap is {softcap}; only 0 is served yet")
    if alibi_slopes is not None:
        kind = type(alibi_slopes)
        raise NotImplementedError(
            f"alibi_slopes is a {kind.__module__}.{kind.__qualname__}; only None is served yet"
        )
