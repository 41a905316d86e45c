"""How each contender is called, as its users call it, on the same tensors."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune

from . import masks
from .inputs import Inputs
from .runner import Call
from .suites import CONTENDERS, Case

_MODULES = {
    "flash_attn": "flash_attn.flash_attn_interface",  # FA-4 has a folder flash_attn, too
    "fa3": "flash_attn_interface",
    "fa4": "flash_attn.cute",
    "flashinfer": "flashinfer",
}


def found() -> list[str]:
    """Attune and the peers that this process can import, in the order of the tables."""
    return [name for name in CONTENDERS if name not in _MODULES or _is_installed(_MODULES[name])]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not
        return False


#: The distributions of peers that share the name of their module's folder with others.
_DISTRIBUTIONS = {"flash_attn": "flash-attn", "fa4": "flash-attn-4"}


def version(name: str) -> str | None:
    """Of a peer with a package of its own."""
    if name not in _MODULES:
        return None
    names = metadata.packages_distributions().get(_MODULES[name], [])
    distribution = _DISTRIBUTIONS.get(name, names[0] if names else None)
    try:
        return metadata.version(distribution) if distribution else None
    except metadata.PackageNotFoundError:
        return None


def prepare(name: str, inputs: Inputs) -> Call:
    """The call of a contender: its answer is out, or for the backward pass (dq, dk, dv).

    Everything that a user does once for a shape is done here. The contender's refusal of the case
    is a NotImplementedError, from here or from the call.
    """
    if inputs.case.variety and not name.startswith("attune"):
        raise NotImplementedError("it is put beside plain cases alone")
    forward = masks.prepare(name, inputs) if inputs.case.rule else _FORWARD[name](inputs)
    if inputs.dout is None:
        return forward
    out = forward()
    return lambda: torch.autograd.grad(
        out, (inputs.q, inputs.k, inputs.v), inputs.dout, retain_graph=True
    )


def _attune(inputs: Inputs) -> Call:
    if inputs.case.page_size is not None and inputs.case.operation == "prefill":
        return _paged_prefill(inputs)
    if inputs.case.page_size is not None:
        q, pages = inputs.q, inputs.pages
        return lambda: attune.flash_attn_with_kvcache(q, pages.k, pages.v, block_table=pages.table)
    if inputs.case.operation == "decode":
        return _contiguous(inputs)
    if inputs.case.operation in ("varlen", "backward_varlen"):
        return _ragged(inputs)
    return _dense(inputs)


def _mask(case: Case) -> dict[str, Any]:
    mask: dict[str, Any] = {"causal": case.causal}
    if case.window is not None:
        mask["window_size"] = case.window_size
    return mask


def _dense(inputs: Inputs, deterministic: bool = False) -> Call:
    """Gradients are the fastest, as the peers' are."""
    q, k, v = inputs.q, inputs.k, inputs.v
    mask = _mask(inputs.case)
    return lambda: attune.flash_attn_func(q, k, v, **mask, deterministic=deterministic)


def _same_bits(inputs: Inputs) -> Call:
    if inputs.case.operation == "backward_varlen":
        return _ragged(inputs, deterministic=True)
    return _dense(inputs, deterministic=True)


def _ragged(inputs: Inputs, others: int | None = None, deterministic: bool = False) -> Call:
    """The sequences one after the other, though they are equally long, and so many others.

    By default there are as many others as the case has; the answer is of the sequences alone;
    gradients are as those of _dense.
    """
    case, mask = inputs.case, _mask(inputs.case)
    if others is None:
        others = case.others
    rows = others * case.other_length

    # Without others nothing is joined or cut off: gradients would pass through copies of each.
    def all_rows(x: torch.Tensor) -> torch.Tensor:
        own = x.flatten(0, 1)
        return torch.cat((own, x.new_ones(rows, *x.shape[2:]))) if rows else own

    q, k, v = (all_rows(x) for x in (inputs.q, inputs.k, inputs.v))

    def starts(length: int) -> torch.Tensor:
        lengths = [length] * case.batch + [case.other_length] * others
        return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=q.device)

    starts_q, starts_k = starts(case.seqlen_q), starts(case.seqlen_k)

    def call() -> torch.Tensor:
        out = attune.flash_attn_varlen_func(
            q,
            k,
            v,
            starts_q,
            starts_k,
            case.seqlen_q,
            case.seqlen_k,
            **mask,
            deterministic=deterministic,
        )
        assert isinstance(out, torch.Tensor)
        own = out[:-rows] if rows else out
        return own.view_as(inputs.q)

    return call


def _alone(inputs: Inputs) -> Call:
    return _ragged(inputs, others=0)


def _paged_prefill(inputs: Inputs, others: int | None = None) -> Call:
    """Sequences with as many queries, whose keys are in pages, and so many others with one query.

    By default there are as many others as the case has; the answer is of the sequences alone.
    """
    case, pages = inputs.case, inputs.pages
    if others is None:
        others = case.others
    if case.others == 0:  # then the cache's call says that all have as many
        return lambda: attune.flash_attn_with_kvcache(
            inputs.q,
            pages.k,
            pages.v,
            cache_seqlens=pages.lengths,
            block_table=pages.table,
            causal=case.causal,
        )
    rows, sequences = inputs.q.flatten(0, 1), case.batch + others
    q = torch.cat((rows, rows.new_ones(others, *rows.shape[1:])))
    lengths = [case.seqlen_q] * case.batch + [1] * others
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=q.device)

    def call() -> torch.Tensor:
        out = attune.flash_attn_varlen_func(
            q,
            pages.k,
            pages.v,
            starts,
            None,
            case.seqlen_q,
            max(case.seqlen_k, case.other_length if others else 0),
            causal=case.causal,
            block_table=pages.table[:sequences],
            seqused_k=pages.lengths[:sequences],
        )
        assert isinstance(out, torch.Tensor)
        return out[: len(rows)].view_as(inputs.q)

    return call


def _apart(inputs: Inputs) -> Call:
    """The sequences with many queries in one call, those with one query in another before it."""
    case, pages = inputs.case, inputs.pages
    chunks = _paged_prefill(inputs, others=0)
    q = inputs.q.new_ones(case.others, 1, case.heads_q, case.head_dim)
    # Decoding takes a table's width for the most keys.
    table = pages.table[case.batch :, : case.other_length // pages.k.shape[1]].contiguous()
    lengths = pages.lengths[case.batch :]

    def call() -> torch.Tensor:
        attune.flash_attn_with_kvcache(
            q, pages.k, pages.v, cache_seqlens=lengths, block_table=table
        )
        return chunks()

    return call


def _contiguous(inputs: Inputs) -> Call:
    if inputs.case.operation == "prefill":
        return _dense(inputs)
    q, k, v = inputs.q, inputs.k, inputs.v
    return lambda: attune.flash_attn_with_kvcache(q, k, v)


def _one_split(inputs: Inputs) -> Call:
    q, k, v = inputs.q, inputs.k, inputs.v
    return lambda: attune.flash_attn_with_kvcache(q, k, v, num_splits=1)


def _sdpa(backend: SDPBackend) -> Callable[[Inputs], Call]:
    def prepared(inputs: Inputs) -> Call:
        _refuse_pages(inputs)
        q, k, v = (x.transpose(1, 2) for x in (inputs.q, inputs.k, inputs.v))
        causal, grouped = inputs.case.causal, inputs.case.heads_q != inputs.case.heads_kv

        def call() -> torch.Tensor:
            try:
                with sdpa_kernel(backend):
                    out = F.scaled_dot_product_attention(
                        q, k, v, is_causal=causal, enable_gqa=grouped
                    )
            except RuntimeError as error:
                if "No available kernel" not in str(error):
                    raise
                raise NotImplementedError("the backend refuses the shape") from error
            return out.transpose(1, 2)

        return call

    return prepared


def _refuse_pages(inputs: Inputs) -> None:
    if inputs.case.page_size is not None:
        raise NotImplementedError("its keys and values are contiguous")


def _flex(inputs: Inputs) -> Call:
    _refuse_pages(inputs)
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # each case compiles its own, and dynamo limits how many a function has
    torch._functorch.config.donated_buffer = False  # they do not go with a graph that is kept
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    case = inputs.case
    q, k, v = (x.transpose(1, 2) for x in (inputs.q, inputs.k, inputs.v))
    mask = None
    if case.causal:
        mask = create_block_mask(
            lambda batch, head, query, key: query >= key,
            None,
            None,
            case.seqlen_q,
            case.seqlen_k,
            device=q.device,
        )
    grouped = case.heads_q != case.heads_kv
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=grouped).transpose(1, 2)


def _flash_attn(module_name: str, table: str) -> Callable[[Inputs], Call]:
    """flash-attn 2 and 3, whose functions have the same names; `table` is what they call a block table."""

    def prepared(inputs: Inputs) -> Call:
        module: Any = importlib.import_module(module_name)
        q, k, v = inputs.q, inputs.k, inputs.v
        if inputs.case.page_size is not None:
            pages = inputs.pages
            lengths = torch.full_like(pages.table[:, 0], inputs.case.seqlen_k)
            return lambda: _first(
                module.flash_attn_with_kvcache(
                    q,
                    pages.k,
                    pages.v,
                    cache_seqlens=lengths,
                    causal=inputs.case.causal,
                    **{table: pages.table},
                )
            )
        if inputs.case.operation == "decode":
            return lambda: _first(module.flash_attn_with_kvcache(q, k, v))
        return lambda: _first(module.flash_attn_func(q, k, v, causal=inputs.case.causal))

    return prepared


def _fa4(inputs: Inputs) -> Call:
    """flash-attn-4, for prefill and the backward pass; its first call compiles for the shape."""
    from flash_attn.cute import flash_attn_func

    if inputs.case.operation not in ("prefill", "backward"):
        raise NotImplementedError("it is put beside prefill and the backward pass alone")
    q, k, v = inputs.q, inputs.k, inputs.v
    return lambda: _first(flash_attn_func(q, k, v, causal=inputs.case.causal))


def _first(answer: Any) -> torch.Tensor:
    """The output where some versions also return the log-sum-exp."""
    return answer[0] if isinstance(answer, tuple) else answer


def _flashinfer(inputs: Inputs) -> Call:
    import flashinfer

    case = inputs.case
    if case.has_gradients:
        raise NotImplementedError("FlashInfer has no backward")
    q, k, v = inputs.q, inputs.k, inputs.v
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=q.device)
    sequences = torch.arange(case.batch + 1, dtype=torch.int32, device=q.device)
    heads = (case.heads_q, case.heads_kv, case.head_dim)
    if case.operation == "decode":
        page = case.page_size or 64
        pages = case.seqlen_k // page
        if case.page_size is not None:
            kv: tuple[torch.Tensor, ...] = (inputs.pages.k, inputs.pages.v)
            every = inputs.pages.table.flatten()
        else:
            kv = tuple(x.view(-1, page, case.heads_kv, case.head_dim) for x in (k, v))
            every = torch.arange(case.batch * pages, dtype=torch.int32, device=q.device)
        full = torch.full((case.batch,), page, dtype=torch.int32, device=q.device)
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=case.heads_q > case.heads_kv
        )
        decode.plan(
            sequences * pages, every, full, *heads, page, q_data_type=q.dtype, kv_data_type=q.dtype
        )
        return lambda: decode.run(q[:, 0], kv)[:, None]
    if case.page_size is not None:
        raise NotImplementedError("FlashInfer's paged prefill is not measured")
    prefill = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    prefill.plan(
        sequences * case.seqlen_q,
        sequences * case.seqlen_k,
        *heads,
        causal=case.causal,
        q_data_type=q.dtype,
    )
    rows = tuple(x.flatten(0, 1) for x in (q, k, v))
    return lambda: prefill.run(*rows).view_as(q)


_FORWARD: dict[str, Callable[[Inputs], Call]] = {
    "attune": _attune,
    "attune_dense": _dense,
    "attune_alone": _alone,
    "attune_apart": _apart,
    "attune_same_bits": _same_bits,
    "attune_contiguous": _contiguous,
    "attune_one_split": _one_split,
    "fa2": _sdpa(SDPBackend.FLASH_ATTENTION),
    "cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION),
    "flex": _flex,
    "flash_attn": _flash_attn("flash_attn", "block_table"),
    "fa3": _flash_attn("flash_attn_interface", "page_table"),
    "fa4": _fa4,
    "flashinfer": _flashinfer,
}
