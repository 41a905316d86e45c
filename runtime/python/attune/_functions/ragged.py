"""Attention over sequences of any lengths, one after the other."""

from __future__ import annotations

from .dense import ADDITIONS_AS_THERE, OPERATOR_OPTIONS, OPTIONS_AS_THERE
from .entry import Argument, Function, Operator

CU_SEQLENS_Q = Argument(
    "cu_seqlens_q",
    "Array",
    """(batch + 1,), int32, on the device of q: where in q each sequence begins, and
after the last where it ends.""",
)
CU_SEQLENS_K = Argument(
    "cu_seqlens_k",
    "Array | None",
    """The same of k and v. With a block_table the lengths alone count, and with
seqused_k it may be None.""",
)
MAX_SEQLEN_Q = Argument(
    "max_seqlen_q",
    "int",
    """The longest sequence's queries; of a longer one only so many rows are written,
and what the others hold is anything: the lengths are not looked at on the host. At least
1 where q has rows.""",
    schema=("SymInt max_seqlen_q",),
)
MAX_SEQLEN_K = Argument(
    "max_seqlen_k",
    "int",
    "The longest sequence's keys; of a longer one only so many are seen.",
    schema=("SymInt max_seqlen_k",),
)

AS_VARLEN_FUNC = (
    "The other arguments, the result, the errors and the paper are those of flash_attn_varlen_func."
)

VARLEN = Function(
    name="flash_attn_varlen_func",
    module="_attention",
    binding="varlen",
    summary="flash_attn_func of a ragged batch: sequences of any lengths, one after the other.",
    details="""\
The lengths stay on the GPU: nothing waits for it, and a CUDA graph that captured the call serves
what they hold when it is replayed. Call once with the same shapes before capturing. Wild lengths
give wrong numbers, but no access outside the arrays. Sequences of no query, of one and of thousands
may stand beside each other, as decoding and prompts in chunks do (block_table, seqused_k).

Where max_seqlen_q is at most 8, the head_dim of v that of q, and at most 256 heads of q share one
of k, the kernels of flash_attn_with_kvcache serve the call, which divide the keys of each sequence
among the GPU's multiprocessors; the others are those of flash_attn_func.""",
    arguments=(
        Argument(
            "q",
            "Array",
            """(total_q, heads_q, head_dim), float16 or bfloat16. Strides and alignment are those of
flash_attn_func.""",
        ),
        Argument(
            "k",
            "Array",
            """(total_k, heads_kv, head_dim), where heads_kv divides heads_q; or with a block_table
(blocks, page_size, heads_kv, head_dim), of any page_size.""",
        ),
        Argument(
            "v",
            "Array",
            "as k, but its head_dim may be another one where flash_attn_func takes it.",
        ),
        CU_SEQLENS_Q,
        CU_SEQLENS_K,
        MAX_SEQLEN_Q,
        MAX_SEQLEN_K,
        *OPTIONS_AS_THERE,
        Argument(
            "block_table",
            "Array | None",
            """(batch, blocks of a sequence), int32, on the device of q: where in a cache the pages
of each sequence are, in order. Entries beyond those of its keys are not read.""",
            None,
        ),
        Argument(
            "seqused_q",
            "Array | None",
            """(batch,), int32, on the device of q: how many of each sequence's rows of q count;
None: all that cu_seqlens_q says. The masks are aligned to the last of them; the result and
softmax_lse keep what they held in the rows after it, which of new memory is anything.""",
            None,
            by_name=True,
        ),
        Argument(
            "seqused_k", "Array | None", "The same of each sequence's keys.", None, by_name=True
        ),
        Argument(
            "out",
            "Array | None",
            """(total_q, heads_q, head_dim of v): where to write the result, which is then this
array; new memory by default. Not where a head_dim is no multiple of 8.""",
            None,
            by_name=True,
            in_torch=False,
        ),
        *ADDITIONS_AS_THERE,
    ),
    result="Array",
    flag="return_attn_probs",
    flagged="tuple[Array, Array, None]",
    returns="""\
An array like q, with the head_dim of v. With return_attn_probs a tuple (out, softmax_lse, None),
where softmax_lse is (heads_q, total_q). Rows that no sequence has or uses are not written; their
gradients are zeros. There is no gradient of keys in a cache.""",
    closing="""\
The other arguments, the errors and the paper are those of flash_attn_func. JAX arrays raise
NotImplementedError. A cache is never copied: where its head_dim is no multiple of 8, its strides
still are, as flash_attn_with_kvcache has it.""",
    operators=(
        Operator(
            "flash_attn_varlen",
            (
                *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
                *(
                    "seqused_k",
                    "block_table",
                    *OPERATOR_OPTIONS,
                    "seqused_q",
                    "alibi_slopes",
                    "learnable_sink",
                ),
            ),
        ),
        Operator(
            "flash_attn_varlen_train",
            (
                *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
                *("seqused_q", "seqused_k", *OPERATOR_OPTIONS, "deterministic"),
                *("dropout_p", "rng_state", "alibi_slopes", "learnable_sink"),
            ),
            required=("cu_seqlens_k",),
        ),
    ),
)

VARLEN_KVPACKED = Function(
    name="flash_attn_varlen_kvpacked_func",
    module="_attention",
    binding="varlen_kvpacked",
    summary="flash_attn_varlen_func of keys and values in one array, without a copy.",
    arguments=(
        Argument("q", "Array", "(total_q, heads_q, head_dim)."),
        Argument("kv", "Array", "(total_k, 2, heads_kv, head_dim): keys, then values."),
        CU_SEQLENS_Q._replace(doc="As in flash_attn_varlen_func."),
        CU_SEQLENS_K._replace(type="Array", doc="Likewise."),
        MAX_SEQLEN_Q._replace(doc="Likewise."),
        MAX_SEQLEN_K._replace(doc="Likewise."),
        *OPTIONS_AS_THERE,
        *ADDITIONS_AS_THERE,
    ),
    result=VARLEN.result,
    flag=VARLEN.flag,
    flagged=VARLEN.flagged,
    closing=AS_VARLEN_FUNC,
)

VARLEN_QKVPACKED = Function(
    name="flash_attn_varlen_qkvpacked_func",
    module="_attention",
    binding="varlen_qkvpacked",
    summary="flash_attn_varlen_func of queries, keys and values in one array, without a copy.",
    arguments=(
        Argument("qkv", "Array", "(total, 3, heads, head_dim): queries, keys, then values."),
        Argument(
            "cu_seqlens",
            "Array",
            """(batch + 1,), int32, on the device of qkv: where each sequence begins, and after
the last where it ends.""",
        ),
        Argument(
            "max_seqlen",
            "int",
            "The longest sequence's tokens; of a longer one only so many rows are written.",
        ),
        *OPTIONS_AS_THERE,
        *ADDITIONS_AS_THERE,
    ),
    result=VARLEN.result,
    flag=VARLEN.flag,
    flagged=VARLEN.flagged,
    closing=AS_VARLEN_FUNC,
)
