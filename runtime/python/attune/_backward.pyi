# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
from collections.abc import Mapping

from ._arguments import Array, Pair
from ._texts import Expression

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
    """The gradients of flash_attn_func, flash_attn_varlen_func or attention by q, k and v.

    For those who differentiate by other means than PyTorch's autograd, which calls it by itself. out
    and softmax_lse are what the forward function gave with the same arguments: others give wrong
    numbers, which cannot be seen here. A learnable_sink is in softmax_lse, and not needed here; its own
    gradient is the sum over its head's rows of exp(learnable_sink - softmax_lse) * (dsoftmax_lse -
    rowsum(dout * out)).

    Args:
        dout: The gradient of out, like it.
        q: As in the forward function, as what follows.
        k: Likewise.
        v: Likewise.
        out: (batch, seqlen_q, heads_q, head_dim of v).
        softmax_lse: (batch, heads_q, seqlen_q), float32, contiguous.
        dsoftmax_lse: The gradient of softmax_lse, like it; None: zeros. It is not read where a query sees no
            key.
        softmax_scale: Finite, 0 or more, and under jax.jit no traced value. By default
            1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom
            right. A query that sees no key gives zeros.
        window_size: (left, right): a query sees so many keys before and after its own position,
            which is i + seqlen_k - seqlen_q; -1: all. With causal the right is 0. Two integers of any
            kind, in a tuple, a list or an array.
        softcap: Scores x, scaled, become softcap * tanh(x / softcap); 0: they stay.
        deterministic: None or True: the same inputs on the same device give the same bits; False: the
            fastest kernels, which may add to dq in any order.
        cu_seqlens_q: As flash_attn_varlen_func has it, and so the next five; arrays then are (total,
            heads, head_dim), and softmax_lse (heads_q, total_q). None: no ragged batch.
        cu_seqlens_k: Likewise.
        max_seqlen_q: Likewise.
        max_seqlen_k: Likewise.
        seqused_q: Likewise.
        seqused_k: Likewise.
        dropout_p: As in the forward function.
        rng_state: That of the forward function, which dropout_p above 0 needs.
        alibi_slopes: As in the forward function, without softcap.
        score: As attention had it, and so the next two. It only adds to s, without softcap and
            alibi_slopes.
        mask: Likewise.
        params: Likewise.

    Returns:
        (dq, dk, dv), like q, k and v. Those of grouped heads of k and v are sums over the heads of q
        that share them. A query that sees no key, and a key that no query sees, have zeros, and so have rows
        that no sequence of a ragged batch has or uses.

    The errors are those of flash_attn_varlen_func and attention; tensors that require a gradient raise
    NotImplementedError, as there are no second derivatives.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
