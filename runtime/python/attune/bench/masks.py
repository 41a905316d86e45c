"""The suites of masks and scores: what each rule is to Attune, to FlexAttention and to the reference."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import attune

from .inputs import Inputs
from .runner import Call
from .suites import Case

#: Of a cap, of the first tokens that every query sees, and of the tokens of a tree.
CAP, FIRST = 30.0, 4


def document_lengths(total: int) -> list[int]:
    """From a 64th to a quarter of the tokens each, the same in every run: 512 to 8,192 of 32,768."""
    draws, lengths = random.Random(0), []
    while (left := total - sum(lengths)) > 0:
        lengths.append(min(left, draws.randint(max(1, total // 64), max(1, total // 4))))
    return lengths


def window_of(case: Case) -> int:
    """Keys that a query sees where a window is the rule, its own included."""
    return min(1024, case.seqlen_k // 4)


def slopes_of(case: Case) -> list[float]:
    """ALiBi's, of a number of heads that is a power of two."""
    return [2.0 ** (-8.0 * (head + 1) / case.heads_q) for head in range(case.heads_q)]


def documents_of(case: Case) -> torch.Tensor:
    """(batch, tokens), the number of the document that each is of."""
    lengths = torch.tensor(document_lengths(case.seqlen_k))
    row = torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(lengths)
    return row.repeat(case.batch, 1)


def tree_of(case: Case) -> torch.Tensor:
    """(batch, tokens, tokens), 1 where a token sees another: itself and the parents on its way, drawn once."""
    draws = random.Random(1)
    tree = torch.zeros(case.batch, case.seqlen_q, case.seqlen_q, dtype=torch.int32)
    for row in tree:
        for token in range(case.seqlen_q):
            if token > 0:
                row[token] = row[draws.randrange(token)]
            row[token, token] = 1
    return tree


@dataclass(frozen=True)
class Rule:
    """What a rule is to Attune.

    Attributes:
        call: Attune's call of the case.
        beside: Its own call without the modification, or by a kernel made for it.
        same: Whether that computes the same.
    """

    call: Callable[[Inputs], Call]
    beside: Callable[[Inputs], Call]
    same: bool = False


def prepare(name: str, inputs: Inputs) -> Call:
    """The call of a contender of these suites."""
    case = inputs.case
    assert case.rule is not None
    if name == "attune":
        return RULES[case.rule].call(inputs)
    if name == "attune_plain":
        return RULES[case.rule].beside(inputs)
    if name == "flex" and case.page_size is None:
        return _flex(inputs)
    raise NotImplementedError("it is not put beside expressions")


def _expressed(**expressions: Any) -> Callable[[Inputs], Call]:
    """Texts, or what makes the arrays that they look up of a case."""

    def prepared(inputs: Inputs) -> Call:
        named = dict(expressions)
        arrays = named.pop("arrays", lambda case: {})(inputs.case)
        params = {name: array.to(inputs.q.device) for name, array in arrays.items()}
        return lambda: attune.attention(inputs.q, inputs.k, inputs.v, params=params, **named)

    return prepared


def _flash(**options: Any) -> Callable[[Inputs], Call]:
    return lambda inputs: (
        lambda: attune.flash_attn_func(inputs.q, inputs.k, inputs.v, causal=True, **options)
    )


def _slopes(inputs: Inputs) -> Call:
    slopes = torch.tensor(slopes_of(inputs.case), device=inputs.q.device)
    return _flash(alibi_slopes=slopes)(inputs)


def _window(inputs: Inputs) -> Call:
    return _flash(window_size=(window_of(inputs.case) - 1, 0))(inputs)


def _windowed(text: str) -> Callable[[Inputs], Call]:
    """A text that names the window's width."""
    return lambda inputs: _expressed(mask=text.format(window=window_of(inputs.case)), causal=True)(
        inputs
    )


def _ragged_documents(inputs: Inputs) -> Call:
    """The documents as sequences of a ragged batch."""
    lengths = document_lengths(inputs.case.seqlen_k) * inputs.case.batch
    ends = [0, *itertools.accumulate(lengths)]
    starts = torch.tensor(ends, dtype=torch.int32, device=inputs.q.device)
    q, k, v = (x.flatten(0, 1) for x in (inputs.q, inputs.k, inputs.v))
    longest = max(lengths)

    def call() -> torch.Tensor:
        out = attune.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=True)
        assert isinstance(out, torch.Tensor)
        return out.view_as(inputs.q)

    return call


def _cached(mask: str | None) -> Callable[[Inputs], Call]:
    """A few tokens to keys in pages, which hold them already."""

    def prepared(inputs: Inputs) -> Call:
        q, pages = inputs.q, inputs.pages
        lengths = torch.full_like(pages.table[:, 0], inputs.case.seqlen_k)
        if mask is None:
            return lambda: attune.flash_attn_with_kvcache(
                q, pages.k, pages.v, cache_seqlens=lengths, block_table=pages.table, causal=True
            )
        params = {"tree": tree_of(inputs.case).to(q.device)}
        return lambda: attune.attention(
            q,
            pages.k,
            pages.v,
            mask=mask,
            params=params,
            cache_seqlens=lengths,
            block_table=pages.table,
        )

    return prepared


#: By the word in a case's name.
RULES = {
    "triangle": Rule(_expressed(mask="k <= p"), _flash(), same=True),
    "alibi": Rule(_slopes, _flash()),
    "documents": Rule(
        _expressed(
            mask="doc[b, p] == doc[b, k]",
            causal=True,
            arrays=lambda case: {"doc": documents_of(case)},
        ),
        _ragged_documents,
        same=True,
    ),
    "prefix": Rule(
        _expressed(
            mask="k <= p or k < prefix[b]",
            arrays=lambda case: {
                "prefix": torch.full((case.batch,), case.seqlen_k // 4, dtype=torch.int32)
            },
        ),
        _flash(),
    ),
    "window": Rule(_windowed("p - k < {window}"), _window, same=True),
    "first": Rule(_windowed(f"p - k < {{window}} or k < {FIRST}"), _window),
    "softcap": Rule(
        _expressed(score=f"{CAP} * tanh(s / {CAP})", causal=True), _flash(softcap=CAP), same=True
    ),
    "tree": Rule(_cached("k < p - q or tree[b, q, k - (p - q)] == 1"), _cached(None)),
}


def visible(
    case: Case, batch: int, query: torch.Tensor, key: torch.Tensor, masks: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Which keys queries see, of index tensors that broadcast; `masks` holds arrays on their device."""
    position = query + case.seqlen_k - case.seqlen_q
    causal = key <= position
    if case.rule == "documents":
        documents = masks["documents"][batch]
        return causal & (documents[position] == documents[key])
    if case.rule == "prefix":
        return causal | (key < case.seqlen_k // 4)
    if case.rule == "window":
        return causal & (position - key < window_of(case))
    if case.rule == "first":
        return causal & ((position - key < window_of(case)) | (key < FIRST))
    if case.rule == "tree":
        first = case.seqlen_k - case.seqlen_q
        seen = masks["tree"][batch, query, (key - first).clamp(min=0)] == 1
        return (key < first) | seen
    return causal


def applied(case: Case, scores: torch.Tensor, batch: int, head: int, row: int) -> torch.Tensor:
    """Scaled scores of heads from `head` and queries from `row` on, (heads, rows, keys), by the case's rule."""
    heads, rows, keys = scores.shape
    query = torch.arange(row, row + rows, device=scores.device)[:, None]
    key = torch.arange(keys, device=scores.device)[None]
    if case.rule == "alibi":
        slopes = torch.tensor(slopes_of(case)[head : head + heads], device=scores.device)
        distance = query + case.seqlen_k - case.seqlen_q - key
        scores = scores - slopes[:, None, None].to(scores.dtype) * distance.abs()
    if case.rule == "softcap":
        scores = CAP * torch.tanh(scores / CAP)
    arrays = {}
    if case.rule == "documents":
        arrays["documents"] = documents_of(case).to(scores.device)
    if case.rule == "tree":
        arrays["tree"] = tree_of(case).to(scores.device)
    return scores.masked_fill(~visible(case, batch, query, key, arrays), float("-inf"))


def _flex(inputs: Inputs) -> Call:
    """Its mask of blocks is made before the first call."""
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # each case compiles its own, and dynamo limits how many a function has
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    case = inputs.case
    q, k, v = (x.transpose(1, 2) for x in (inputs.q, inputs.k, inputs.v))
    documents = documents_of(case)[0].to(q.device)
    slopes = torch.tensor(slopes_of(case), device=q.device)
    window, prefix = window_of(case), case.seqlen_k // 4

    def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return query >= key

    masks = {
        "documents": lambda b, h, q, k: (q >= k) & (documents[q] == documents[k]),
        "prefix": lambda b, h, q, k: (q >= k) | (k < prefix),
        "window": lambda b, h, q, k: (q >= k) & (q - k < window),
        "first": lambda b, h, q, k: (q >= k) & ((q - k < window) | (k < FIRST)),
    }
    scores = {
        "alibi": lambda s, b, h, q, k: s - slopes[h] * (q - k),
        "softcap": lambda s, b, h, q, k: CAP * torch.tanh(s / CAP),
    }
    rule = case.rule or ""
    lengths = (case.seqlen_q, case.seqlen_k)
    mask = create_block_mask(masks.get(rule, causal), None, None, *lengths, device=q.device)
    named = {"score_mod": scores.get(rule), "block_mask": mask}
    named["enable_gqa"] = case.heads_q != case.heads_kv
    return lambda: compiled(q, k, v, **named).transpose(1, 2)
