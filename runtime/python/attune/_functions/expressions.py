"""Attention whose scores and masks are expressions."""

from __future__ import annotations

from .dense import (
    CAUSAL,
    DETERMINISTIC,
    LEARNABLE_SINK,
    OPERATOR_OPTIONS,
    SOFTCAP,
    SOFTMAX_SCALE,
    WINDOW_SIZE,
)
from .entry import Argument, Function, Operator
from .ragged import CU_SEQLENS_K, CU_SEQLENS_Q, MAX_SEQLEN_K, MAX_SEQLEN_Q
from .serving import KVCACHE


def _array(name: str, doc: str) -> Argument:
    """One that may be left out."""
    return Argument(name, "Array | None", doc, None, by_name=True)


def _by_name(argument: Argument, doc: str) -> Argument:
    """Another function's argument, taken by name alone."""
    return argument._replace(doc=doc, by_name=True)


#: What an expression is in attune._texts: a text or a function.
SCORE = Argument(
    "score",
    "Expression | None",
    """What a score becomes, a text or a function: of s, the scaled score; q, the query's row in
its sequence; p, its position among the keys, q + seqlen_k - seqlen_q; k, the key's position
in its sequence; h and hk, the heads of q and of k; b, the sequence; and of parameters, by
their names. Arithmetic + - * / // %, comparisons, and, or, not, min, max, abs, exp2, log2,
tanh, real(integer), select(condition, yes, no), inf. A function takes some of these by name
and writes & | ~ for and, or, not; attune.select and others are its functions. A score of -inf
is a key that is not seen; a mask says the same faster, as it leaves blocks of keys unread. Up
to 2048 operations, numbers and names in 16384 characters, 48 parentheses, calls and indices
inside of each other; sums, products, `and` and `or` of many terms are not nested.""",
    None,
    by_name=True,
    schema=("str? score",),
)
MASK = Argument(
    "mask",
    "Expression | None",
    "Which keys a query sees of those that causal and window_size leave it, without s.",
    None,
    by_name=True,
    schema=("str? mask",),
)
PARAMS = Argument(
    "params",
    "Mapping[str, Array] | None",
    """Arrays that expressions look up by name, float32 or int32, contiguous, on q's device. A
dimension that is indexed by a name alone is counted by it (h: heads_q, hk: heads_kv, b:
batch, q: at least seqlen_q, p and k: at least seqlen_k, of a cache its room) in score and
mask alike, and by one (of q beside p or k by these); others have the extent that the array
has. An index beyond an extent counts as the nearest inside. No gradient goes through them.""",
    None,
    by_name=True,
    schema=("str[]? names", "Tensor[]? params"),
    whole=lambda names, arrays: None if names is None else dict(zip(names, arrays)),
)
#: In this order wherever they are taken.
EXPRESSIONS = (SCORE, MASK, PARAMS)

_EXPRESSIONS = tuple(one.name for one in EXPRESSIONS)
_RAGGED = (
    *("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "seqused_q"),
    "seqused_k",
)
_CACHE = ("cache_seqlens", "cache_batch_idx", "cache_leftpad", "num_splits", "learnable_sink")

EXPRESSED = Function(
    name="attention",
    module="_expressions",
    binding="",
    summary="Attention whose scores and masks are expressions: softmax(score(scale * q @ k.T), mask) @ v.",
    details="""\
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
(or -inf) whose condition has no s. Masks may be any.""",
    arguments=(
        Argument(
            "q",
            "Array",
            """(batch, seqlen_q, heads_q, head_dim), float16 or bfloat16, as flash_attn_func takes it; of
a ragged batch (total_q, heads_q, head_dim).""",
        ),
        Argument(
            "k",
            "Array",
            "(batch, seqlen_k, heads_kv, head_dim), (total_k, heads_kv, head_dim), or a cache.",
        ),
        Argument("v", "Array", "as k."),
        *EXPRESSIONS,
        _by_name(SOFTMAX_SCALE, "As flash_attn_func takes it, and so are the three that follow."),
        _by_name(CAUSAL, "The mask up to the query's own position."),
        _by_name(WINDOW_SIZE, "(left, right)."),
        _by_name(SOFTCAP, "A cap on scores, before the expression."),
        Argument(
            "return_lse",
            "bool",
            """Also return the log-sum-exp, (batch, heads_q, seqlen_q), of a ragged batch
(heads_q, total_q).""",
            False,
            by_name=True,
        ),
        _by_name(
            CU_SEQLENS_Q, "As flash_attn_varlen_func takes it, and so are the six that follow."
        )._replace(type="Array | None", default=None),
        _by_name(CU_SEQLENS_K, "None with a cache, or with seqused_k and pages.")._replace(
            default=None
        ),
        _by_name(MAX_SEQLEN_Q, "Needed with cu_seqlens_q.")._replace(
            type="int | None", default=None, schema=("SymInt? max_seqlen_q",)
        ),
        _by_name(MAX_SEQLEN_K, "Needed with cu_seqlens_q, but of a cache.")._replace(
            type="int | None", default=None, schema=("SymInt? max_seqlen_k",)
        ),
        _array("seqused_q", "None: all."),
        _array("seqused_k", "None: all."),
        _array("block_table", "Where the pages of each sequence are."),
        _by_name(
            KVCACHE.argument("cache_seqlens"),
            """As flash_attn_with_kvcache takes it, and so is what follows, with new keys and values
by the names k_new and v_new.""",
        ),
        _array("cache_batch_idx", "Where in the cache each sequence is."),
        _array("cache_leftpad", "Where each sequence begins; p and k count from there."),
        _array("k_new", "Keys to append, (batch, seqlen_new, heads_kv, head_dim)."),
        _array("v_new", "As k_new."),
        _array("rotary_cos", "Their rotation."),
        _array("rotary_sin", "As rotary_cos."),
        _by_name(KVCACHE.argument("rotary_interleaved"), "Which columns make a pair."),
        _by_name(KVCACHE.argument("num_splits"), "Parts of the keys of each sequence."),
        LEARNABLE_SINK._replace(doc="As flash_attn_func takes it, and so is deterministic."),
        DETERMINISTIC._replace(doc="Of gradients.", by_name=True),
    ),
    result="Array",
    flag="return_lse",
    flagged="tuple[Array, Array]",
    returns="""\
An array like q, or a tuple (out, lse). A query that sees no key gives zeros, and an lse of -inf,
or with a learnable_sink that logit.""",
    torch_note="""\
Functions are traced where torch.compile traces the call, once: what they read of Python's variables
is taken for a constant. There they are functions that were defined outside what is compiled, until
PyTorch takes others for constants (a text may stand anywhere).""",
    raises=(
        (
            "ValueError",
            """What is wrong in an expression, with its column; an array that is missing or has another
shape; arguments that do not go together.""",
        ),
        ("TypeError", "An array of another dtype or framework."),
        (
            "NotImplementedError",
            """A gradient of a cache, of parameters, or by a score that does more than add to s;
JAX arrays that are ragged or a cache; what no kernel serves.""",
        ),
    ),
    operators=(
        Operator(
            "attention",
            (
                *("q", "k", "v", *_EXPRESSIONS, *OPERATOR_OPTIONS, *_RAGGED, "block_table"),
                *_CACHE,
            ),
        ),
        Operator(
            "attention_append",
            (
                *("q", "k", "v", "k_new", "v_new", *_EXPRESSIONS, *OPERATOR_OPTIONS),
                *("block_table", "rotary_cos", "rotary_sin", "rotary_interleaved", *_CACHE),
            ),
            required=("k_new", "v_new"),
            written=("k", "v"),
        ),
        Operator(
            "attention_train",
            (
                *("q", "k", "v", *_EXPRESSIONS, *OPERATOR_OPTIONS, *_RAGGED),
                *("deterministic", "learnable_sink"),
            ),
        ),
    ),
)
