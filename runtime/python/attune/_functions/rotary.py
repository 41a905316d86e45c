"""Rotary position embedding of queries and keys that are in no cache yet."""

from __future__ import annotations

from .entry import REQUIRED, Argument, Function, Operator
from .serving import ROTARY_INTERLEAVED, ROTARY_SIN

ROTARY = Function(
    name="apply_rotary",
    module="_rotary",
    binding="rotary",
    summary="Rotates queries and keys in place by the angles of their positions (rotary embedding).",
    details="""\
For prefill, as flash_attn_with_kvcache and store_kvcache rotate what goes into a cache: the
results are those that are stored there.

Positions and offsets stay on the GPU, as with flash_attn_with_kvcache. A row at a position that
rotary_cos has no row for stays as it is.""",
    arguments=(
        Argument(
            "q",
            "Array",
            """(batch, seqlen, heads_q, head_dim), or (total, heads_q, head_dim) for the rows of all
sequences, float16 or bfloat16, written in place. head_dim is a multiple of 8; strides and
alignment are those of flash_attn_func.""",
        ),
        Argument(
            "k",
            "Array | None",
            """as q, of the same positions and with any number of heads; None: only q is rotated. The
two must not overlap, but may be parts of one array.""",
        ),
        Argument(
            "rotary_cos",
            "Array",
            """(rotations, rotary_dim / 2), contiguous, of the dtype of q: the first rotary_dim
columns are rotated, a multiple of 16. For one offset that all sequences have, pass
rotary_cos[offset:] and rotary_sin[offset:].""",
        ),
        ROTARY_SIN._replace(type="Array", default=REQUIRED),
        Argument(
            "positions",
            "Array | None",
            """(batch, seqlen), or (total,) where q has no batch, int32, contiguous, on the device
of q: the row of rotary_cos and rotary_sin for each row of q and k; None: row i of a
sequence has seqlen_offsets + i.""",
            None,
            by_name=True,
        ),
        Argument(
            "seqlen_offsets",
            "Array | None",
            """(batch,), int32, on the device of q: the position of each sequence's first row, as
cache_seqlens is in flash_attn_with_kvcache; None: 0. Not together with positions.""",
            None,
            by_name=True,
        ),
        ROTARY_INTERLEAVED._replace(by_name=True),
    ),
    result="None",
    raises=(
        (
            "ValueError",
            "An array that is read-only, and what flash_attn_func raises it for.",
        ),
    ),
    closing="""\
The other errors are those of flash_attn_with_kvcache.

Paper: RoFormer, https://arxiv.org/abs/2104.09864.""",
    operators=(
        Operator(
            "apply_rotary",
            (
                *("q", "k", "rotary_cos", "rotary_sin", "positions", "seqlen_offsets"),
                "rotary_interleaved",
            ),
            results="()",
            written=("q", "k"),
        ),
    ),
)
