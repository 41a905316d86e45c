"""What is measured: the suites, their cases and the contenders, as data."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

from . import any_shapes

Operation = Literal["prefill", "varlen", "decode", "backward", "backward_varlen"]
#: What tables show: a rate, a time on the GPU, the wait for a first call, a call's time on the
#: host, or how far answers are from float64.
Figure = Literal["TFLOP/s", "GB/s", "µs", "first call ms", "host µs", "RMS error"]

#: Name on the command line and in JSON: name in tables and plots. Attune comes first.
CONTENDERS = {
    "attune": "Attune",
    "fa2": "FA-2",  # PyTorch's FlashAttention-2
    "cudnn": "cuDNN",
    "flex": "FlexAttention",
    "flash_attn": "flash-attn",
    "fa3": "FA-3",
    "fa4": "FA-4",
    "flashinfer": "FlashInfer",
}
#: The calls of the host suite, some of which are no contenders: name in JSON, name in tables.
HOST_CALLS = {
    "attune": "attune.flash_attn_func",
    "attune.torch": "attune.torch.flash_attn_func",
    "fa2": "PyTorch's sdpa, FA-2",
    "cudnn": "PyTorch's sdpa, cuDNN",
    "empty_like": "torch.empty_like",
    "launch": "the launch of an empty kernel",
}
PEERS = tuple(name for name in CONTENDERS if name != "attune")
#: Other calls of Attune, and a read of memory, that a suite puts it beside instead of peers.
OWN_CALLS = {
    "attune_dense": "dense",  # the same sequences as a batch of one length
    "attune_alone": "alone",  # the same sequences without the short ones
    "attune_apart": "apart",  # the sequences with one query in a call of their own
    "attune_contiguous": "contiguous",  # the same keys and values in the order of the sequences
    "attune_one_split": "one split",
    "attune_plain": "no expression",  # without the rule, or by a kernel of its own for it
    "attune_same_bits": "deterministic",  # gradients with the same bits every time
    "attune_even": "even lengths",  # as many keys, the same number in each sequence
    "read": "a read",  # of as many bytes as the keys and values have
}

_NAME = re.compile(
    r"d(?P<d>\d+) b(?P<b>\d+) (?:h(?P<h>\d+)|hq(?P<hq>\d+) hk(?P<hk>\d+)) "
    r"(?:q(?P<q>\d+) )?L(?:(?P<shortest>\d+)-)?(?P<l>\d+)(?:\+(?P<others>\d+)x(?P<other>\d+))?"
    r"(?: (?P<mask>full|causal))?(?: (?P<rule>triangle|alibi|documents|prefix|window|first|softcap))?"
    r"(?: (?P<variety>window(?P<window>\d+)|ragged))?"
    r"(?: page(?P<page>\d+))?(?: tree(?P<tree>\d+))?(?P<outliers> outliers)?"
    r"(?: (?P<gradient>dq|dk|dv))?"
)


_RAGGED: dict[str, Operation] = {"prefill": "varlen", "backward": "backward_varlen"}


@dataclass(frozen=True)
class Case:
    """One problem, bf16. Its name says all of it: 'd128 b8 hq32 hk8 L2048 causal'."""

    name: str
    operation: Operation
    head_dim: int
    batch: int
    heads_q: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    causal: bool
    page_size: int | None = None  #: of paged keys and values
    shortest: int | None = (
        None  #: of lengths up to seqlen_k, which follow from it; None: all are equal
    )
    outliers: bool = False  #: in q, k and v, a thousandth of their elements
    others: int = 0  #: sequences beside the `batch` long ones, which flop leaves out
    other_length: int = 0  #: keys of each of those, and queries, of which there is one with pages
    rule: str | None = None  #: of expressions, one of masks.RULES
    gradient: str | None = None  #: the one that is looked at, where not all are: dq, dk or dv
    window: int | None = None  #: keys that a query sees before its own, and unless causal behind it
    variety: str = ""  #: 'window1024' or 'ragged', beside plain cases of a suite

    @classmethod
    def parse(cls, operation: Operation, name: str) -> Case:
        """The case of this name; decoding has one query token, or those of a tree.

        'q2048' says how many a prefill has, 'ragged' that its sequences are those of a ragged
        batch. Raises ValueError.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"'{name}' names no case; 'd128 b8 hq32 hk8 L2048 causal' would")
        length = int(found["l"])
        if found["variety"] and (operation not in _RAGGED or found["rule"]):
            raise ValueError(f"'{name}': no case of {operation} is of a {found['variety']} variety")
        return cls(
            name=name,
            operation=_RAGGED[operation] if found["variety"] == "ragged" else operation,
            head_dim=int(found["d"]),
            batch=int(found["b"]),
            heads_q=int(found["h"] or found["hq"]),
            heads_kv=int(found["h"] or found["hk"]),
            seqlen_q=int(found["tree"] or 1) if operation == "decode" else int(found["q"] or length),
            seqlen_k=length,
            causal=found["mask"] == "causal",
            page_size=int(found["page"]) if found["page"] else None,
            shortest=int(found["shortest"]) if found["shortest"] else None,
            outliers=found["outliers"] is not None,
            others=int(found["others"] or 0),
            other_length=int(found["other"] or 0),
            rule="tree" if found["tree"] else found["rule"],
            gradient=found["gradient"],
            window=int(found["window"]) if found["window"] else None,
            variety=found["variety"] or "",
        )

    @property
    def mask(self) -> str:
        return "causal" if self.causal else "full"

    @property
    def window_size(self) -> tuple[int, int]:
        """As flash-attn has it: keys before and behind a query's own position, -1 for all."""
        width = -1 if self.window is None else self.window
        return width, 0 if self.causal else width

    @property
    def is_unlike_plain(self) -> bool:
        """Whether a call without its expressions has another answer."""
        return self.rule in ("alibi", "prefix", "first", "tree")

    @property
    def has_gradients(self) -> bool:
        """Whether the answer is (dq, dk, dv)."""
        return self.operation in ("backward", "backward_varlen")

    @property
    def lengths(self) -> tuple[int, ...]:
        """The keys of each sequence; unequal ones are log-uniform, and the same in every run."""
        if self.shortest is None:
            return (self.seqlen_k,) * self.batch
        draws = random.Random(0)
        ratio = self.seqlen_k / self.shortest
        return tuple(round(self.shortest * ratio ** draws.random()) for _ in range(self.batch))

    @property
    def even_lengths(self) -> tuple[int, ...]:
        """As many keys in all, each sequence having as many as the others, or one more."""
        total = sum(self.lengths)
        return tuple((total + place) // self.batch for place in range(self.batch))

    @property
    def flop(self) -> float:
        """Of its matrix products: 4 B H Lq Lk D, halved when causal, times 2.5 backward.

        Of more keys than queries the causal mask hides half of as many keys as there are queries.
        Of a window the pairs inside count.
        """
        pairs = self.batch * self.heads_q * self.seqlen_q * self.seqlen_k
        mask = 1.0 - 0.5 * self.seqlen_q / self.seqlen_k if self.causal else 1.0
        if self.window is not None:
            mask = self._pairs_in_window / (self.seqlen_q * self.seqlen_k)
        return 4 * pairs * self.head_dim * mask * (2.5 if self.has_gradients else 1.0)

    @property
    def _pairs_in_window(self) -> int:
        before, behind = self.window_size
        first = self.seqlen_k - self.seqlen_q  # the position of the first query
        return sum(
            max(0, min(self.seqlen_k, place + behind + 1) - max(0, place - before))
            for place in range(first, self.seqlen_k)
        )

    @property
    def kv_bytes(self) -> int:
        """Of keys and values, each read once."""
        return 2 * 2 * self.heads_kv * sum(self.lengths) * self.head_dim


@dataclass(frozen=True)
class Suite:
    """Cases that are shown together; with `by_length` plots have a panel per head_dim, variety and
    mask.

    `beside` is the one of OWN_CALLS that takes the place of peers, but for those of `peers`.
    """

    name: str
    about: str
    operation: Operation
    figure: Figure
    cases: tuple[Case, ...]
    by_length: bool = False
    beside: str | None = None
    peers: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether its times are those of the GPU, so that the machine's ceilings matter."""
        return self.figure in ("TFLOP/s", "GB/s", "µs")


def _suite(
    name: str,
    about: str,
    operation: Operation,
    figure: Figure,
    cases: list[str],
    by_length: bool = False,
    beside: str | None = None,
    peers: tuple[str, ...] = (),
) -> Suite:
    parsed = tuple(Case.parse(operation, case) for case in cases)
    return Suite(name, about, operation, figure, parsed, by_length, beside, peers)


def _tokens_16k(head_dims: tuple[int, ...], lengths: tuple[int, ...]) -> list[str]:
    """FlashAttention's own shapes: 16384 tokens in a batch, a hidden size of 2048 at most."""
    return [
        f"d{d} b{16384 // length} h{2048 // d} L{length} {mask}"
        for d in head_dims
        for length in lengths
        for mask in ("full", "causal")
    ]


_DECODE = [
    "d128 b1 hq32 hk8 L4096",
    "d128 b1 hq32 hk8 L32768",
    "d128 b1 hq32 hk8 L131072",
    "d128 b1 hq32 hk32 L32768",
    "d128 b8 hq32 hk8 L4096",
    "d128 b8 hq32 hk8 L32768",
    "d128 b64 hq32 hk8 L4096",
    "d128 b64 hq64 hk8 L8192",
    "d128 b128 hq32 hk8 L2048",
    "d128 b16 hq16 hk1 L16384",
    "d64 b16 hq32 hk8 L8192",
]
_PAGED = [f"{case} page{size}" for size in (16, 64, 256, 1) for case in _DECODE]
_PAGED_PREFILL = [
    f"d{d} b4 hq32 hk8 q2048 L{kilo * 1024} {mask} page{size}"
    for size in (256, 128, 64, 16, 1)
    for d in (64, 128, 256)
    for kilo in (2, 16, 64)
    for mask in ("full", "causal")
]
_KILOS = (4, 8, 16, 32, 64, 128)
_PREFILL = _tokens_16k((64, 128, 256), (512, 1024, 2048, 4096, 8192, 16384))
_BACKWARD = _tokens_16k((64, 128), (1024, 4096, 16384))
_DETERMINISM = [*_BACKWARD, "d256 b4 h8 L4096 full", "d256 b4 h8 L4096 causal"]
_ERRORS = _tokens_16k((64, 96, 128, 192, 256), (512, 2048, 8192))
_GRADIENT_ERRORS = _tokens_16k((64, 128, 256), (512, 4096))
_ALL = (
    _suite(
        "prefill",
        "16K tokens, hidden size 2048",
        "prefill",
        "TFLOP/s",
        _PREFILL,
        by_length=True,
    ),
    _suite(
        "gqa",
        "prefill with grouped-query heads",
        "prefill",
        "TFLOP/s",
        [
            "d128 b8 hq32 hk8 L2048 causal",
            "d128 b2 hq32 hk8 L8192 causal",
            "d128 b1 hq32 hk8 L32768 causal",
            "d128 b1 hq64 hk8 L16384 causal",
        ],
    ),
    _suite(
        "varlen",
        "the cases of prefill as ragged batches, beside their dense kernels",
        "varlen",
        "TFLOP/s",
        _PREFILL,
        by_length=True,
        beside="attune_dense",
    ),
    _suite(
        "among",
        "one long sequence among 256 short ones, beside the long one alone",
        "varlen",
        "TFLOP/s",
        [
            f"d128 b1 hq32 hk8 L{length}+256x{short} {mask}"
            for length, short in ((8192, 1), (8192, 16), (16384, 16))
            for mask in ("full", "causal")
        ],
        beside="attune_alone",
    ),
    _suite("decode", "one query token, contiguous keys and values", "decode", "µs", _DECODE),
    _suite("paged", "one query token, keys and values in shuffled pages", "decode", "µs", _PAGED),
    _suite(
        "pages",
        "one query token, shuffled pages beside contiguous keys and values",
        "decode",
        "µs",
        _PAGED,
        beside="attune_contiguous",
    ),
    _suite(
        "paged_prefill",
        "2,048 queries, shuffled pages beside contiguous keys and values",
        "prefill",
        "TFLOP/s",
        _PAGED_PREFILL,
        beside="attune_contiguous",
    ),
    _suite(
        "mixed",
        "chunks of queries and sequences with one in one call, beside a call for each kind",
        "prefill",
        "µs",
        [
            f"d128 b{chunks} hq32 hk8 q{queries} L{keys}+{others}x{length} causal page{size}"
            for chunks, queries, keys, others, length, size in (
                (1, 2048, 2048, 64, 4096, 64),
                (1, 512, 8192, 64, 4096, 64),
                (4, 2048, 16384, 32, 16384, 64),
                (1, 8192, 8192, 256, 1024, 64),
                (1, 2048, 2048, 8, 32768, 64),
                (1, 2048, 2048, 64, 4096, 16),
            )
        ],
        beside="attune_apart",
    ),
    _suite(
        "splits",
        "one query token of one sequence, its keys split or not",
        "decode",
        "µs",
        [f"d128 b1 hq32 hk{heads} L{kilo * 1024}" for heads in (32, 8) for kilo in _KILOS],
        beside="attune_one_split",
    ),
    _suite(
        "lengths",
        "one query token, log-uniform lengths beside as many keys in even ones",
        "decode",
        "GB/s",
        ["d128 b64 hq32 hk8 L128-65536 page64"],
        beside="attune_even",
    ),
    _suite(
        "read",
        "one query token beside a streaming read of as many bytes",
        "decode",
        "µs",
        _DECODE,
        beside="read",
    ),
    _suite(
        "masks",
        "masks and scores as expressions, beside kernels without them and FlexAttention",
        "prefill",
        "µs",
        [
            f"d{d} b1 h{2048 // d} L{kilo * 1024} {rule}"
            for d in (64, 128)
            for kilo in (8, 32)
            for rule in ("triangle", "alibi", "documents", "prefix", "window", "first", "softcap")
        ],
        beside="attune_plain",
        peers=("flex",),
    ),
    _suite(
        "tree_decode",
        "16 tokens of a tree to keys in pages, beside the causal mask",
        "decode",
        "µs",
        [f"d128 b{batch} hq32 hk8 L8192 page64 tree16" for batch in (1, 8, 64)],
        beside="attune_plain",
    ),
    _suite(
        "backward",
        "gradients of q, k and v",
        "backward",
        "TFLOP/s",
        [
            *_BACKWARD,
            "d256 b4 h8 L4096 full",
            "d256 b4 h8 L4096 causal",
            "d96 b4 h16 L4096 causal",
            "d128 b2 hq32 hk8 L8192 causal",
        ],
        by_length=True,
    ),
    _suite(
        "backward_varlen",
        "gradients of the cases of backward as ragged batches, beside their dense kernels",
        "backward_varlen",
        "TFLOP/s",
        _BACKWARD,
        by_length=True,
        beside="attune_dense",
    ),
    _suite(
        "determinism",
        "gradients by the fastest kernels, beside those with the same bits every time",
        "backward",
        "TFLOP/s",
        [
            *_DETERMINISM,
            *(f"{case} window1024" for case in _DETERMINISM if "L1024" not in case),
            *(f"{case} ragged" for case in _DETERMINISM),
        ],
        by_length=True,
        beside="attune_same_bits",
    ),
    _suite(
        "errors",
        "how far answers are from float64, with normal inputs and with outliers",
        "prefill",
        "RMS error",
        [f"{case}{inputs}" for inputs in ("", " outliers") for case in _ERRORS],
    ),
    _suite(
        "gradient_errors",
        "how far gradients are from float64, with normal inputs and with outliers",
        "backward",
        "RMS error",
        [
            f"{case}{inputs} {gradient}"
            for inputs in ("", " outliers")
            for case in _GRADIENT_ERRORS
            for gradient in ("dq", "dk", "dv")
        ],
    ),
    _suite(
        "jit",
        "the first call of a fresh process with empty caches",
        "prefill",
        "first call ms",
        ["d64 b4 h32 L4096 causal", "d128 b4 h16 L4096 causal"],
    ),
    _suite(
        "host",
        "host time of a call from Python, on a tiny problem",
        "prefill",
        "host µs",
        ["d64 b1 h4 L16 causal"],
    ),
)


def any_suites(seed: int) -> dict[str, Suite]:
    """Suites of shapes that nobody tuned for: others for each seed."""
    suites = (
        _suite(
            "any_prefill",
            "prefill of shapes drawn from --seed",
            "prefill",
            "TFLOP/s",
            any_shapes.names("prefill", seed),
        ),
        _suite(
            "any_decode",
            "one query token, shapes drawn from --seed",
            "decode",
            "µs",
            any_shapes.names("decode", seed),
        ),
        _suite(
            "any_pages",
            "pages beside contiguous keys and values, shapes drawn from --seed",
            "decode",
            "µs",
            any_shapes.names("paged", seed),
            beside="attune_contiguous",
        ),
    )
    return {suite.name: suite for suite in suites}


#: Those drawn from a seed are here with seed 0.
SUITES = {suite.name: suite for suite in _ALL} | any_suites(0)
