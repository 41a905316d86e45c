"""The gradients of attention."""

from __future__ import annotations

from .dense import (
    ALIBI_SLOPES,
    CAUSAL,
    DETERMINISTIC,
    OPERATOR_OPTIONS,
    RNG_STATE,
    SOFTCAP,
    SOFTMAX_SCALE,
    WINDOW_SIZE,
)
from .entry import Argument, Function, Operator
from .expressions import MASK, PARAMS, SCORE
from .ragged import CU_SEQLENS_Q, MAX_SEQLEN_K, MAX_SEQLEN_Q

#: What a ragged batch has besides.
RAGGED = (
    CU_SEQLENS_Q._replace(
        type="Array | None",
        doc="""As flash_attn_varlen_func has it, and so the next five; arrays then are (total,
heads, head_dim), and softmax_lse (heads_q, total_q). None: no ragged batch.""",
        default=None,
        by_name=True,
    ),
    Argument("cu_seqlens_k", "Array | None", "Likewise.", None, by_name=True),
    MAX_SEQLEN_Q._replace(
        type="int | None",
        doc="Likewise.",
        default=None,
        by_name=True,
        schema=("SymInt? max_seqlen_q",),
    ),
    MAX_SEQLEN_K._replace(
        type="int | None",
        doc="Likewise.",
        default=None,
        by_name=True,
        schema=("SymInt? max_seqlen_k",),
    ),
    Argument("seqused_q", "Array | None", "Likewise.", None, by_name=True),
    Argument("seqused_k", "Array | None", "Likewise.", None, by_name=True),
)

BACKWARD = Function(
    name="flash_attn_backward",
    module="_backward",
    binding="backward",
    summary="The gradients of flash_attn_func, flash_attn_varlen_func or attention by q, k and v.",
    details="""\
For those who differentiate by other means than PyTorch's autograd, which calls it by itself. out
and softmax_lse are what the forward function gave with the same arguments: others give wrong
numbers, which cannot be seen here. A learnable_sink is in softmax_lse, and not needed here; its own
gradient is the sum over its head's rows of exp(learnable_sink - softmax_lse) * (dsoftmax_lse -
rowsum(dout * out)).""",
    arguments=(
        Argument("dout", "Array", "The gradient of out, like it."),
        Argument("q", "Array", "As in the forward function, as what follows."),
        Argument("k", "Array", "Likewise."),
        Argument("v", "Array", "Likewise."),
        Argument("out", "Array", "(batch, seqlen_q, heads_q, head_dim of v)."),
        Argument("softmax_lse", "Array", "(batch, heads_q, seqlen_q), float32, contiguous."),
        Argument(
            "dsoftmax_lse",
            "Array | None",
            """The gradient of softmax_lse, like it; None: zeros. It is not read where a query sees no
key.""",
            None,
            by_name=True,
        ),
        SOFTMAX_SCALE._replace(by_name=True),
        CAUSAL._replace(by_name=True),
        WINDOW_SIZE._replace(by_name=True),
        SOFTCAP._replace(by_name=True),
        DETERMINISTIC._replace(
            doc="""None or True: the same inputs on the same device give the same bits; False: the
fastest kernels, which may add to dq in any order.""",
            use="passed",
            by_name=True,
        ),
        *RAGGED,
        Argument("dropout_p", "float", "As in the forward function.", 0.0, by_name=True),
        RNG_STATE._replace(doc="That of the forward function, which dropout_p above 0 needs."),
        ALIBI_SLOPES._replace(doc="As in the forward function, without softcap.", by_name=True),
        SCORE._replace(
            doc="""As attention had it, and so the next two. It only adds to s, without softcap and
alibi_slopes."""
        ),
        MASK._replace(doc="Likewise."),
        PARAMS._replace(doc="Likewise."),
    ),
    result="tuple[Array, Array, Array]",
    returns="""\
(dq, dk, dv), like q, k and v. Those of grouped heads of k and v are sums over the heads of q
that share them. A query that sees no key, and a key that no query sees, have zeros, and so have rows
that no sequence of a ragged batch has or uses.""",
    closing="""\
The errors are those of flash_attn_varlen_func and attention; tensors that require a gradient raise
NotImplementedError, as there are no second derivatives.

Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.""",
    operators=(
        Operator(
            "flash_attn_backward",
            (
                *("dout", "q", "k", "v", "out", "softmax_lse", "dsoftmax_lse", *OPERATOR_OPTIONS),
                *("deterministic", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
                *("seqused_q", "seqused_k", "dropout_p", "rng_state", "alibi_slopes"),
                *("score", "mask", "params"),
            ),
            results="(Tensor dq, Tensor dk, Tensor dv)",
        ),
    ),
)
