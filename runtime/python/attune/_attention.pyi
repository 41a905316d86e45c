# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
from typing import Literal, overload

from ._arguments import Array, Pair

@overload
def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """softmax(softmax_scale * q @ k.T + mask) @ v, for each batch and head.

    Grouped and multi-query attention: k and v may have fewer heads than q; query head i then uses
    head i // (heads_q / heads_kv) of them.

    The result has gradients by q, k, v and learnable_sink, and so has softmax_lse: those of PyTorch
    tensors that require one (2.4 or newer, through attune.torch), and of JAX arrays in reverse mode.
    There are no second ones.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16. head_dim is up to 256 and
            contiguous; the other strides are multiples of 8 elements in any order, and the first
            element is aligned to 16 bytes. Where head_dim is no multiple of 8, padded copies of q, k
            and v are made first, and the result is a view of their width. Any of batch, seqlen_q and
            seqlen_k may be 0: without keys the result is zeros (not where v has the larger head_dim).
        k: (batch, seqlen_k, heads_kv, head_dim), where heads_kv divides heads_q; framework, device
            and dtype are those of q.
        v: as k, but its head_dim may be another one on GPUs of compute capability 9.0: 192 and 128
            have a kernel of their own, which serves what is smaller too. That kernel takes no expanded
            arrays, whose strides are 0.
        dropout_p: The probability, at least 0 and less than 1, with which each weight is dropped; the others
            are divided by 1 - dropout_p. It is rounded to a multiple of 1/256: to none up to 1/512, and
            to 255/256 at most.
        softmax_scale: Finite, 0 or more, and under jax.jit no traced value. By default
            1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom
            right. A query that sees no key gives zeros.
        window_size: (left, right): a query sees so many keys before and after its own position,
            which is i + seqlen_k - seqlen_q; -1: all. With causal the right is 0. Two integers of any
            kind, in a tuple, a list or an array.
        softcap: Scores x, scaled, become softcap * tanh(x / softcap); 0: they stay.
        alibi_slopes: (heads_q,) or (batch, heads_q), float32, on the device of q: of each head, by what a
            score falls for each key of distance from the query's own position (ALiBi):
            -alibi_slopes[h] * abs(i + seqlen_k - seqlen_q - j) is added to it, after softcap. It has no
            gradient itself, and beside a softcap nothing has one.
        deterministic: Of gradients. None or True: the same inputs on the same device give the same bits;
            False: the fastest kernels, which may sum in any order, but of JAX arrays. The output has the
            same bits either way.
        return_attn_probs: Also return the log-sum-exp of each row.
        rng_state: (2,), int64, on the device of q: seed and offset, below 2^44, of dropout, which
            drops the same weights where they are the same. None: of PyTorch tensors two numbers that
            torch.randint draws on their device, as torch.manual_seed has it; other arrays need it. Of JAX
            arrays it is a key of jax.random in their place.
        learnable_sink: (heads_q,), float32, float16 or bfloat16, on the device of q: a logit of each head
            (attention sink), in the softmax of each of its rows as one more key's score, whose value is
            0; softmax_lse has it, too. A query that sees no key gives zeros, and the logit as its LSE. It
            has a gradient, as q has.

    Returns:
        An array like q, with the head_dim of v. With return_attn_probs a tuple (out, softmax_lse, None)
        as flash-attn has it without dropout, with it too: softmax_lse is (batch, heads_q, seqlen_q),
        float32, natural logarithm, and -inf (flash-attn 2: +inf) where a query sees no key.

    Raises:
        TypeError: An array of no known framework, of another one than q, or of a dtype that is not
            served; a scale that is no number.
        ValueError: A shape, stride, alignment, device or scale that is not accepted.
        NotImplementedError: An argument, a shape or a GPU that no kernel serves yet; a JAX array on several
            devices; a second derivative.
        RuntimeError: No GPU, or the driver or a compiler failed; the emulator found a fault. From
            JAX also what else it meets only when it runs the kernel: a GPU that is not served.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
@overload
def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...

@overload
def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """flash_attn_func of keys and values in one array, without a copy.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim).
        kv: (batch, seqlen_k, 2, heads_kv, head_dim): keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
@overload
def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...

@overload
def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """flash_attn_func of queries, keys and values in one array, without a copy.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim): queries, keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
@overload
def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...

@overload
def flash_attn_varlen_func(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    block_table: Array | None = None,
    *,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    out: Array | None = None,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """flash_attn_func of a ragged batch: sequences of any lengths, one after the other.

    The lengths stay on the GPU: nothing waits for it, and a CUDA graph that captured the call serves
    what they hold when it is replayed. Call once with the same shapes before capturing. Wild lengths
    give wrong numbers, but no access outside the arrays. Sequences of no query, of one and of thousands
    may stand beside each other, as decoding and prompts in chunks do (block_table, seqused_k).

    Where max_seqlen_q is at most 8, the head_dim of v that of q, and at most 256 heads of q share one
    of k, the kernels of flash_attn_with_kvcache serve the call, which divide the keys of each sequence
    among the GPU's multiprocessors; the others are those of flash_attn_func.

    Args:
        q: (total_q, heads_q, head_dim), float16 or bfloat16. Strides and alignment are those of
            flash_attn_func.
        k: (total_k, heads_kv, head_dim), where heads_kv divides heads_q; or with a block_table
            (blocks, page_size, heads_kv, head_dim), of any page_size.
        v: as k, but its head_dim may be another one where flash_attn_func takes it.
        cu_seqlens_q: (batch + 1,), int32, on the device of q: where in q each sequence begins, and
            after the last where it ends.
        cu_seqlens_k: The same of k and v. With a block_table the lengths alone count, and with
            seqused_k it may be None.
        max_seqlen_q: The longest sequence's queries; of a longer one only so many rows are written,
            and what the others hold is anything: the lengths are not looked at on the host. At least
            1 where q has rows.
        max_seqlen_k: The longest sequence's keys; of a longer one only so many are seen.
        block_table: (batch, blocks of a sequence), int32, on the device of q: where in a cache the pages
            of each sequence are, in order. Entries beyond those of its keys are not read.
        seqused_q: (batch,), int32, on the device of q: how many of each sequence's rows of q count;
            None: all that cu_seqlens_q says. The masks are aligned to the last of them; the result and
            softmax_lse keep what they held in the rows after it, which of new memory is anything.
        seqused_k: The same of each sequence's keys.
        out: (total_q, heads_q, head_dim of v): where to write the result, which is then this
            array; new memory by default. Not where a head_dim is no multiple of 8.

    Returns:
        An array like q, with the head_dim of v. With return_attn_probs a tuple (out, softmax_lse, None),
        where softmax_lse is (heads_q, total_q). Rows that no sequence has or uses are not written; their
        gradients are zeros. There is no gradient of keys in a cache.

    The other arguments, the errors and the paper are those of flash_attn_func. JAX arrays raise
    NotImplementedError. A cache is never copied: where its head_dim is no multiple of 8, its strides
    still are, as flash_attn_with_kvcache has it.
    """
@overload
def flash_attn_varlen_func(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    block_table: Array | None = None,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    out: Array | None = None,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_varlen_func(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    block_table: Array | None = None,
    *,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    out: Array | None = None,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...

@overload
def flash_attn_varlen_kvpacked_func(
    q: Array,
    kv: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """flash_attn_varlen_func of keys and values in one array, without a copy.

    Args:
        q: (total_q, heads_q, head_dim).
        kv: (total_k, 2, heads_kv, head_dim): keys, then values.
        cu_seqlens_q: As in flash_attn_varlen_func.
        cu_seqlens_k: Likewise.
        max_seqlen_q: Likewise.
        max_seqlen_k: Likewise.

    The other arguments, the result, the errors and the paper are those of flash_attn_varlen_func.
    """
@overload
def flash_attn_varlen_kvpacked_func(
    q: Array,
    kv: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: Array,
    kv: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...

@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Array,
    cu_seqlens: Array,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: Literal[False] = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array:
    """flash_attn_varlen_func of queries, keys and values in one array, without a copy.

    Args:
        qkv: (total, 3, heads, head_dim): queries, keys, then values.
        cu_seqlens: (batch + 1,), int32, on the device of qkv: where each sequence begins, and after
            the last where it ends.
        max_seqlen: The longest sequence's tokens; of a longer one only so many rows are written.

    The other arguments, the result, the errors and the paper are those of flash_attn_varlen_func.
    """
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Array,
    cu_seqlens: Array,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    *,
    return_attn_probs: Literal[True],
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> tuple[Array, Array, None]: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Array,
    cu_seqlens: Array,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    *,
    rng_state: Array | None = None,
    learnable_sink: Array | None = None,
) -> Array | tuple[Array, Array, None]: ...
