"""What serving does with a K/V cache."""

from __future__ import annotations

from .dense import (
    ALIBI_SLOPES,
    CAUSAL,
    LEARNABLE_SINK,
    OPERATOR_OPTIONS,
    SOFTCAP,
    SOFTMAX_SCALE,
    WINDOW_SIZE,
)
from .entry import Argument, Function, Operator

ROTARY_SIN = Argument("rotary_sin", "Array | None", "as rotary_cos.", None)
ROTARY_INTERLEAVED = Argument(
    "rotary_interleaved",
    "bool",
    """Whether the columns 2i and 2i + 1 make a pair (GPT-J), or i and
i + rotary_dim / 2 (GPT-NeoX, Llama).""",
    True,
)

KVCACHE = Function(
    name="flash_attn_with_kvcache",
    module="_serving",
    binding="decode",
    summary="Attention to keys and values in a cache: decoding, and prompts that come in chunks.",
    details="""\
The arguments by position are flash-attn 2's; those by name alone are Attune's, or flash-attn 3's.

Lengths and tables stay on the GPU: nothing waits for it, and a CUDA graph that captured the call
serves what they hold when it is replayed. Call once with the same shapes before capturing.

Up to 16 queries a sequence are decoding: kernels divide the keys of each sequence among the GPU's
multiprocessors. More are served by the kernels of flash_attn_func, or of
flash_attn_varlen_func with a block_table, after a kernel that stores the new keys; num_splits then
has no effect.""",
    arguments=(
        Argument(
            "q",
            "Array",
            """(batch, seqlen_q, heads_q, head_dim), float16 or bfloat16.
Strides and alignment are those of flash_attn_func. Where head_dim is no multiple of 8,
padded copies of q, k and v are made first, and the result is a view of their width.""",
        ),
        Argument(
            "k_cache",
            "Array",
            """(batch_cache, seqlen_cache, heads_kv, head_dim), where heads_kv divides heads_q and
batch_cache is at least batch; or with a block_table (blocks, page_size, heads_kv,
head_dim), of any page_size. Strides in any order, so that heads may come before tokens.
A cache is never copied: where head_dim is no multiple of 8, its strides still are, as in
cache[..., :59] of a cache with 64 columns, of which the last 5 are neither read nor
written.""",
        ),
        Argument("v_cache", "Array", "as k_cache."),
        Argument(
            "k",
            "Array | None",
            """(batch, seqlen_new, heads_kv, head_dim): new keys, which are first written into the cache,
after the cache_seqlens keys that each sequence has; None: none. Keys that a sequence has
no room for are not written.""",
            None,
        ),
        Argument("v", "Array | None", "as k.", None),
        Argument(
            "rotary_cos",
            "Array | None",
            """(rotations, rotary_dim / 2), contiguous, of the dtype of q: the first rotary_dim
columns, a multiple of 16, of the new keys and of the queries are rotated (rotary
embedding). New key i has the row cache_seqlens + i; so has query i where causal or a
window is given, and else every query has the row cache_seqlens. None: no rotation.""",
            None,
        ),
        ROTARY_SIN,
        Argument(
            "cache_seqlens",
            "int | Array | None",
            """The keys that each sequence has in the cache, those of k apart: (batch,),
int32, on the device of q, or one integer for all of them, or without k None for as many
as the cache has room for. Keys beyond them are not read.""",
            None,
            schema=("Tensor? cache_seqlens", "SymInt? seqlen_k"),
            whole=lambda on_device, one: one if on_device is None else on_device,
        ),
        Argument(
            "cache_batch_idx",
            "Array | None",
            """(batch,), int32, on the device of q: where in the cache each sequence is, or
its row of the block_table, of which a wild one is taken for the nearest; None: in order.""",
            None,
        ),
        Argument(
            "cache_leftpad",
            "Array | None",
            """(batch,), int32, on the device of q: the place in the cache of each sequence's
first key, where sequences are padded at the left. What is before it does not exist, though
cache_seqlens counts it, and so do the rows of rotary_cos and the columns of a block_table;
windows are aligned to the sequence's end all the same. None: 0.""",
            None,
        ),
        Argument(
            "block_table",
            "Array | None",
            """(batch, blocks of a sequence), int32, on the device of q: where the pages of
each sequence are, in order. Entries beyond those of its keys are not read. Of lengths on
the GPU that it holds no pages for only so many keys count; one integer is refused.""",
            None,
        ),
        SOFTMAX_SCALE._replace(doc="Finite, 0 or more. By default 1 / sqrt(head_dim)."),
        CAUSAL._replace(
            doc="Query i sees the keys j <= i + seqlen_k - seqlen_q, as if the window's right were 0."
        ),
        WINDOW_SIZE._replace(
            doc="""(left, right): a query sees so many keys before and after its own position,
which is i + seqlen_k - seqlen_q, where seqlen_k counts the new keys; -1: all."""
        ),
        SOFTCAP._replace(doc="As in flash_attn_func."),
        ROTARY_INTERLEAVED,
        ALIBI_SLOPES._replace(doc="As in flash_attn_func."),
        Argument(
            "num_splits",
            "int",
            """Parts into which the keys of each sequence are divided, up to 256, so that the
result does not depend on the other sequences. 0: as many as are fastest.""",
            0,
        ),
        Argument("return_softmax_lse", "bool", "Also return the log-sum-exp of each row.", False),
        Argument(
            "out",
            "Array | None",
            """Where to write the result, shaped like q, which is then this array; new memory by
default.""",
            None,
            by_name=True,
            in_torch=False,
        ),
        Argument(
            "check_tables",
            "bool",
            """Before anything is launched, check on the GPU that cache_seqlens and the tables
lead nowhere outside the cache, cache_leftpad nowhere beyond cache_seqlens and cu_seqlens_q
nowhere outside q, and wait for that: for debugging. Not while a CUDA graph is captured, nor
with more than 16 queries a sequence.""",
            False,
            by_name=True,
        ),
        Argument(
            "cu_seqlens_q",
            "Array | None",
            """(batch + 1,), int32, on the device of q: a ragged batch, in which q is (total_q,
heads_q, head_dim) and sequence i has its rows from cu_seqlens_q[i] up to
cu_seqlens_q[i + 1]; rows of no sequence are not written. Without k. None: each sequence
has as many queries.""",
            None,
            by_name=True,
        ),
        Argument(
            "max_seqlen_q",
            "int | None",
            """With cu_seqlens_q: no sequence has more queries; at least 1 where q has rows.""",
            None,
            by_name=True,
            schema=("SymInt? max_seqlen_q",),
        ),
        LEARNABLE_SINK._replace(doc="As in flash_attn_func."),
    ),
    result="Array",
    flag="return_softmax_lse",
    flagged="tuple[Array, Array]",
    returns="""\
An array like q; with return_softmax_lse a tuple (out, softmax_lse), where softmax_lse is
(batch, heads_q, seqlen_q), or (heads_q, total_q) of a ragged batch, float32, natural logarithm.
A query that sees no key gives zeros, and -inf in softmax_lse, or with a learnable_sink that logit.""",
    raises=(
        (
            "NotImplementedError",
            """A JAX array, a PyTorch tensor that requires a gradient, or a GPU that no
kernel serves; with more than 16 queries a sequence check_tables, or cache_leftpad where
the pages of k_cache and v_cache are not the same whole number of rows apart.""",
        ),
        (
            "ValueError",
            """With check_tables, the first entry that leads outside the cache; and what
flash_attn_func raises it for.""",
        ),
    ),
    closing="""\
The other errors are those of flash_attn_func.

Paper: Flash-Decoding, https://pytorch.org/blog/flash-decoding/; FlashAttention-2,
https://arxiv.org/abs/2307.08691.""",
    operators=(
        Operator(
            "flash_attn_with_kvcache",
            (
                *("q", "k_cache", "v_cache", "cache_seqlens", "cache_batch_idx", "block_table"),
                *(*OPERATOR_OPTIONS, "num_splits", "check_tables"),
                *(
                    "cu_seqlens_q",
                    "max_seqlen_q",
                    "cache_leftpad",
                    "alibi_slopes",
                    "learnable_sink",
                ),
            ),
        ),
        # An operator of its own: one that may write into its cache has torch.compile take it for one that does.
        Operator(
            "flash_attn_with_kvcache_append",
            (
                *("q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin"),
                *("cache_seqlens", "cache_batch_idx", "block_table", *OPERATOR_OPTIONS),
                *(
                    "rotary_interleaved",
                    "num_splits",
                    "check_tables",
                    "cache_leftpad",
                    "alibi_slopes",
                    "learnable_sink",
                ),
            ),
            required=("k", "v"),
            written=("k_cache", "v_cache"),
        ),
    ),
)

STORE = Function(
    name="store_kvcache",
    module="_serving",
    binding="store",
    summary=(
        "Writes new keys and values into a cache, the keys rotated on their way (rotary embedding)."
    ),
    details="""\
Slots, lengths, tables and positions stay on the GPU, as with flash_attn_with_kvcache. None of
them leads outside the cache: what they name there is not written. The new arrays and the cache
must not overlap, and no two tokens may have one place.""",
    arguments=(
        Argument(
            "k",
            "Array",
            """(batch, tokens, heads_kv, head_dim), float16 or bfloat16, or with a slot_mapping also
(tokens, heads_kv, head_dim). Strides and alignment are those of flash_attn_func.""",
        ),
        Argument("v", "Array", "as k."),
        Argument(
            "k_cache",
            "Array",
            """The cache as flash_attn_with_kvcache takes it, written in place; with a slot_mapping
(blocks, page_size, heads_kv, head_dim), where page_size may be 1.""",
        ),
        Argument("v_cache", "Array", "as k_cache."),
        Argument(
            "slot_mapping",
            "Array | None",
            """(batch, tokens), or (tokens,) where k has no batch, int64 or int32, contiguous,
on the device of k: block * page_size + place in the block of each token; a negative one is
not written. One of (tokens,) may be shorter than k: tokens beyond it are not written.
None: token i of a sequence becomes its key cache_seqlens + i.""",
            None,
            by_name=True,
        ),
        Argument(
            "cache_seqlens",
            "Array | None",
            """(batch,), int32, on the device of k: the keys that each sequence has already;
None: none.""",
            None,
            by_name=True,
        ),
        Argument(
            "cache_batch_idx",
            "Array | None",
            "As in flash_attn_with_kvcache; not together with a slot_mapping.",
            None,
            by_name=True,
        ),
        Argument("block_table", "Array | None", "Likewise.", None, by_name=True),
        Argument(
            "positions",
            "Array | None",
            """Shaped like slot_mapping, int32: the row of rotary_cos and rotary_sin for each
token; None: cache_seqlens + i. A key beyond the last row is stored as it is.""",
            None,
            by_name=True,
        ),
        Argument(
            "rotary_cos",
            "Array | None",
            """(rotations, rotary_dim / 2), contiguous, of the dtype of k: the first rotary_dim
columns of each key are rotated, a multiple of 16. None: keys are stored as they are.""",
            None,
            by_name=True,
        ),
        ROTARY_SIN._replace(by_name=True),
        ROTARY_INTERLEAVED._replace(by_name=True),
        Argument(
            "check_tables",
            "bool",
            "As in flash_attn_with_kvcache, of slot_mapping too.",
            False,
            by_name=True,
        ),
    ),
    result="None",
    raises=(
        (
            "ValueError",
            """A cache that is read-only, with check_tables an entry that leads outside the
cache, and what flash_attn_func raises it for.""",
        ),
    ),
    closing="""\
The other errors are those of flash_attn_with_kvcache.

Paper: RoFormer, https://arxiv.org/abs/2104.09864.""",
    operators=(
        Operator(
            "store_kvcache",
            (
                *("k", "v", "k_cache", "v_cache", "slot_mapping", "cache_seqlens"),
                *("cache_batch_idx", "block_table", "positions", "rotary_cos", "rotary_sin"),
                *("rotary_interleaved", "check_tables"),
            ),
            results="()",
            written=("k_cache", "v_cache"),
        ),
    ),
)

MERGE = Function(
    name="merge_attn_states",
    module="_serving",
    binding="merge",
    summary="Merges attention over some keys and attention over others into attention over all of them.",
    details="""\
So a prefix that many sequences share is attended to once for all of them.

Of PyTorch tensors that require a gradient both results have one (2.4 or newer, through
attune.torch), by o1, o2, lse1 and lse2; not where the result is written to out.""",
    arguments=(
        Argument(
            "o1",
            "Array",
            """(batch, seqlen, heads, head_dim), or (total, heads, head_dim) for the rows of all
sequences, float16 or bfloat16. Strides and alignment are those of flash_attn_func.""",
        ),
        Argument(
            "lse1",
            "Array",
            """Its softmax_lse: (batch, heads, seqlen) or (heads, total), float32, contiguous, natural
logarithm. Where it is -inf, o1 is not read.""",
        ),
        Argument("o2", "Array", "as o1."),
        Argument("lse2", "Array", "as lse1."),
        Argument("return_lse", "bool", "Also return the merged log-sum-exp.", False, by_name=True),
        Argument(
            "out",
            "Array | None",
            """Where to write the result, shaped like o1, which is then this array; new memory by
default. It may be o1 or o2. Not where head_dim is no multiple of 8.""",
            None,
            by_name=True,
            in_torch=False,
        ),
    ),
    result="Array",
    flag="return_lse",
    flagged="tuple[Array, Array]",
    returns="An array like o1; with return_lse a tuple (out, lse).",
    closing="""\
The errors are those of flash_attn_with_kvcache.

Paper: section 2.2 of https://arxiv.org/abs/2501.01005.""",
    operators=(
        Operator(
            "merge_attn_states", ("o1", "lse1", "o2", "lse2"), results="(Tensor out, Tensor lse)"
        ),
        Operator(
            "merge_attn_states_train",
            ("o1", "lse1", "o2", "lse2"),
            results="(Tensor out, Tensor lse)",
        ),
    ),
)
