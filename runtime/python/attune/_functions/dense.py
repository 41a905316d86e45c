"""Attention over sequences of one length."""

from __future__ import annotations

from .entry import Argument, Function, Operator

#: Options of attention over keys of any kind.
SOFTMAX_SCALE = Argument(
    "softmax_scale",
    "float | None",
    """Finite, 0 or more, and under jax.jit no traced value. By default
1 / sqrt(head_dim).""",
    None,
)
CAUSAL = Argument(
    "causal",
    "bool",
    """Query i sees the keys j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom
right. A query that sees no key gives zeros.""",
    False,
)
WINDOW_SIZE = Argument(
    "window_size",
    "Pair",
    """(left, right): a query sees so many keys before and after its own position,
which is i + seqlen_k - seqlen_q; -1: all. With causal the right is 0. Two integers of any
kind, in a tuple, a list or an array.""",
    (-1, -1),
    schema=("int window_left", "int window_right"),
    whole=lambda left, right: (left, right),
)
SOFTCAP = Argument(
    "softcap",
    "float",
    "Scores x, scaled, become softcap * tanh(x / softcap); 0: they stay.",
    0.0,
)
ALIBI_SLOPES = Argument(
    "alibi_slopes",
    "Array | None",
    """(heads_q,) or (batch, heads_q), float32, on the device of q: of each head, by what a
score falls for each key of distance from the query's own position (ALiBi):
-alibi_slopes[h] * abs(i + seqlen_k - seqlen_q - j) is added to it, after softcap. It has no
gradient itself, and beside a softcap nothing has one.""",
    None,
)

DETERMINISTIC = Argument(
    "deterministic",
    "bool | None",
    """Of gradients. None or True: the same inputs on the same device give the same bits;
False: the fastest kernels, which may sum in any order, but of JAX arrays. The output has the
same bits either way.""",
    None,
    use="gradients",
)

RNG_STATE = Argument(
    "rng_state",
    "Array | None",
    """(2,), int64, on the device of q: seed and offset, below 2^44, of dropout, which
drops the same weights where they are the same. None: of PyTorch tensors two numbers that
torch.randint draws on their device, as torch.manual_seed has it; other arrays need it. Of JAX
arrays it is a key of jax.random in their place.""",
    None,
    by_name=True,
)

LEARNABLE_SINK = Argument(
    "learnable_sink",
    "Array | None",
    """(heads_q,), float32, float16 or bfloat16, on the device of q: a logit of each head
(attention sink), in the softmax of each of its rows as one more key's score, whose value is
0; softmax_lse has it, too. A query that sees no key gives zeros, and the logit as its LSE. It
has a gradient, as q has.""",
    None,
    by_name=True,
)

OPTIONS = (
    Argument(
        "dropout_p",
        "float",
        """The probability, at least 0 and less than 1, with which each weight is dropped; the others
are divided by 1 - dropout_p. It is rounded to a multiple of 1/256: to none up to 1/512, and
to 255/256 at most.""",
        0.0,
    ),
    SOFTMAX_SCALE,
    CAUSAL,
    WINDOW_SIZE,
    SOFTCAP,
    ALIBI_SLOPES,
    DETERMINISTIC,
    Argument("return_attn_probs", "bool", "Also return the log-sum-exp of each row.", False),
)
#: The same where another function's documentation says what they are.
OPTIONS_AS_THERE = tuple(one._replace(doc="") for one in OPTIONS)
#: And of what is taken by name alone.
ADDITIONS = (RNG_STATE, LEARNABLE_SINK)
ADDITIONS_AS_THERE = tuple(one._replace(doc="") for one in ADDITIONS)

#: Of those, what an operator takes.
OPERATOR_OPTIONS = ("softmax_scale", "causal", "window_size", "softcap")

AS_FLASH_ATTN_FUNC = (
    "The other arguments, the result, the errors and the paper are those of flash_attn_func."
)

ATTENTION = Function(
    name="flash_attn_func",
    module="_attention",
    binding="attention",
    summary="softmax(softmax_scale * q @ k.T + mask) @ v, for each batch and head.",
    details="""\
Grouped and multi-query attention: k and v may have fewer heads than q; query head i then uses
head i // (heads_q / heads_kv) of them.

The result has gradients by q, k, v and learnable_sink, and so has softmax_lse: those of PyTorch
tensors that require one (2.4 or newer, through attune.torch), and of JAX arrays in reverse mode.
There are no second ones.""",
    arguments=(
        Argument(
            "q",
            "Array",
            """(batch, seqlen_q, heads_q, head_dim), float16 or bfloat16. head_dim is up to 256 and
contiguous; the other strides are multiples of 8 elements in any order, and the first
element is aligned to 16 bytes. Where head_dim is no multiple of 8, padded copies of q, k
and v are made first, and the result is a view of their width. Any of batch, seqlen_q and
seqlen_k may be 0: without keys the result is zeros (not where v has the larger head_dim).""",
        ),
        Argument(
            "k",
            "Array",
            """(batch, seqlen_k, heads_kv, head_dim), where heads_kv divides heads_q; framework, device
and dtype are those of q.""",
        ),
        Argument(
            "v",
            "Array",
            """as k, but its head_dim may be another one on GPUs of compute capability 9.0: 192 and 128
have a kernel of their own, which serves what is smaller too. That kernel takes no expanded
arrays, whose strides are 0.""",
        ),
        *OPTIONS,
        *ADDITIONS,
    ),
    result="Array",
    flag="return_attn_probs",
    flagged="tuple[Array, Array, None]",
    returns="""\
An array like q, with the head_dim of v. With return_attn_probs a tuple (out, softmax_lse, None)
as flash-attn has it without dropout, with it too: softmax_lse is (batch, heads_q, seqlen_q),
float32, natural logarithm, and -inf (flash-attn 2: +inf) where a query sees no key.""",
    torch_note="Its strides are those of torch.empty_like(q); where v has another head_dim it is contiguous.",
    raises=(
        (
            "TypeError",
            """An array of no known framework, of another one than q, or of a dtype that is not
served; a scale that is no number.""",
        ),
        ("ValueError", "A shape, stride, alignment, device or scale that is not accepted."),
        (
            "NotImplementedError",
            """An argument, a shape or a GPU that no kernel serves yet; a JAX array on several
devices; a second derivative.""",
        ),
        (
            "RuntimeError",
            """No GPU, or the driver or a compiler failed; the emulator found a fault. From
JAX also what else it meets only when it runs the kernel: a GPU that is not served.""",
        ),
    ),
    closing="Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.",
    operators=(
        Operator(
            "flash_attn",
            ("q", "k", "v", *OPERATOR_OPTIONS, "alibi_slopes", "learnable_sink"),
            "Tensor",
        ),
        Operator(
            "flash_attn_lse", ("q", "k", "v", *OPERATOR_OPTIONS, "alibi_slopes", "learnable_sink")
        ),
        Operator(
            "flash_attn_train",
            (
                "q",
                "k",
                "v",
                *OPERATOR_OPTIONS,
                "deterministic",
                "dropout_p",
                "rng_state",
                "alibi_slopes",
                "learnable_sink",
            ),
        ),
    ),
)

KVPACKED = Function(
    name="flash_attn_kvpacked_func",
    module="_attention",
    binding="attention_kvpacked",
    summary="flash_attn_func of keys and values in one array, without a copy.",
    arguments=(
        Argument("q", "Array", "(batch, seqlen_q, heads_q, head_dim)."),
        Argument("kv", "Array", "(batch, seqlen_k, 2, heads_kv, head_dim): keys, then values."),
        *OPTIONS_AS_THERE,
        *ADDITIONS_AS_THERE,
    ),
    result=ATTENTION.result,
    flag=ATTENTION.flag,
    flagged=ATTENTION.flagged,
    closing=AS_FLASH_ATTN_FUNC,
)

QKVPACKED = Function(
    name="flash_attn_qkvpacked_func",
    module="_attention",
    binding="attention_qkvpacked",
    summary="flash_attn_func of queries, keys and values in one array, without a copy.",
    arguments=(
        Argument(
            "qkv", "Array", "(batch, seqlen, 3, heads, head_dim): queries, keys, then values."
        ),
        *OPTIONS_AS_THERE,
        *ADDITIONS_AS_THERE,
    ),
    result=ATTENTION.result,
    flag=ATTENTION.flag,
    flagged=ATTENTION.flagged,
    closing=AS_FLASH_ATTN_FUNC,
)
