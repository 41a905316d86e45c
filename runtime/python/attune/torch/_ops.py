"""The operators attune::flash_attn and its siblings, registered with PyTorch.

Tensors are those of attune's functions, and so are the errors: those functions run the operators. Names, arguments,
defaults and which function serves which operator are those of the list of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

import attune

from .. import _attune
from .._functions import FUNCTIONS, OPERATORS, SCHEMAS, binder, operands
from .._texts import complete
from . import _fakes

# Inductor may otherwise hand over another layout than the one that was traced.
_tags = (
    torch.Tag.pt2_compliant_tag,
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)
# define and impl cost a call 2 us, torch.library.custom_op 7.
_library = torch.library.Library("attune", "DEF")

#: What runs the operators, by the name of the function that they serve.
functions = {name: getattr(attune, name) for name, one in FUNCTIONS.items() if one.operators}

# The gradient of an operator: from its context and the gradients of its results to those of its arguments.
_Differentiate = Callable[..., tuple[Any, ...]]
# What keeps in the context what this takes: ctx, inputs, output.
_Keep = Callable[..., None]
_Prepare = Callable[[dict[str, Any]], None]


def _names_of(name: str) -> tuple[str, ...]:
    """The arguments of an operator."""
    return tuple(one.name for one in operands(*OPERATORS[name]))


def _implementation(name: str, prepare: _Prepare | None) -> Callable[..., Any]:
    """What runs an operator: the function that it serves, once `prepare` has changed or refused its arguments."""
    function, operator = OPERATORS[name]
    bind = binder(function, operator)
    served = function.name
    flag = function.flag if operator.results.count("Tensor") > 1 else ""

    def run(*values: Any) -> Any:
        named = bind(*values)
        if prepare is not None:
            prepare(named)
        if not flag:
            return functions[served](**named)
        named[flag] = True
        result = functions[served](**named)
        return result[0], result[1]

    return run


def _make_readable(named: dict[str, Any]) -> None:
    """Of a backward pass: gradients as kernels read them, which autograd makes of any layout."""
    named["dout"] = _readable(named["dout"])
    if named["dsoftmax_lse"] is not None:
        named["dsoftmax_lse"] = named["dsoftmax_lse"].contiguous()


def _readable(dout: torch.Tensor) -> torch.Tensor:
    """In rows that kernels read, those of tensor maps among them: itself, or a copy, as of an expanded scalar or of
    what begins inside of another tensor."""
    *strides, last = dout.stride()
    *sizes, columns = dout.shape
    apart = all(
        stride % 8 == 0 and (stride >= columns or size == 1) for size, stride in zip(sizes, strides)
    )
    if last == 1 and apart and dout.data_ptr() % 16 == 0:
        return dout
    return dout.clone(memory_format=torch.contiguous_format)


def _require_gradients(named: dict[str, Any]) -> None:
    """Of a call that is to be differentiated: refuses a score that gradients do not pass."""
    score, _ = complete(named["score"], named["mask"], named["params"] or {})
    _attune.require_gradients(score, named["softcap"])


def _differentiable(name: str) -> tuple[_Differentiate, _Keep]:
    """Of an operator whose gradients by q, k and v are those of flash_attn_backward."""
    names = _names_of(name)
    taken = [one for one in _names_of("flash_attn_backward") if one in names and one != "params"]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        given = dict(zip(names, inputs, strict=True))
        kept = {one: given[one] for one in (*taken, "learnable_sink")}
        kept["out"], kept["softmax_lse"] = output
        tensors = {one: value for one, value in kept.items() if isinstance(value, torch.Tensor)}
        ctx.options = {one: value for one, value in kept.items() if one not in tensors}
        ctx.tensors = tuple(tensors)
        ctx.has_params = given.get("params") is not None
        ctx.save_for_backward(*tensors.values(), *(given.get("params") or ()))
        ctx.set_materialize_grads(False)

    def differentiate(
        ctx: Any, dout: torch.Tensor | None, dsoftmax_lse: torch.Tensor | None
    ) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        kept = {**dict(zip(ctx.tensors, saved)), **ctx.options}
        params = list(saved[len(ctx.tensors) :])
        gradients: dict[str, Any] = {}
        if ctx.has_params:
            gradients["params"] = [None] * len(params)
        if dout is not None or dsoftmax_lse is not None:
            _refuse_second_derivatives()
            dout = torch.zeros_like(kept["out"]) if dout is None else dout
            sink = kept.pop("learnable_sink")
            if sink is not None and ctx.needs_input_grad[names.index("learnable_sink")]:
                gradients["learnable_sink"] = _of_sink(sink, dout, dsoftmax_lse, kept)
            kept.update(dout=dout, dsoftmax_lse=dsoftmax_lse)
            kept["params"] = params if ctx.has_params else None
            gradients.update(zip(("q", "k", "v"), backward(**kept)))
        # PyTorch leaves out defaults at the end, and takes gradients of what is there.
        return tuple(gradients.get(one) for one in names[: len(ctx.needs_input_grad)])

    return differentiate, keep


def _of_sink(
    sink: torch.Tensor, dout: torch.Tensor, dlse: torch.Tensor | None, kept: dict[str, Any]
) -> torch.Tensor:
    """The gradient of a sink, which is one more key of each row, and whose value is 0."""
    out, lse = kept["out"], kept["softmax_lse"]
    grown = -(dout.float() * out.float()).sum(-1).transpose(-1, -2)
    if dlse is not None:
        grown = grown + dlse
    counts = lse.isfinite()
    if kept.get("cu_seqlens_q") is not None:
        starts, longest = kept["cu_seqlens_q"], kept["max_seqlen_q"]
        counts = counts & _written_rows(out.shape[0], starts, longest, kept["seqused_q"])
    each = torch.where(counts, (sink.float()[:, None] - lse).exp() * grown, 0).sum(-1)
    return each.reshape(-1, sink.shape[0]).sum(0).to(sink.dtype)


def _written_rows(
    total: int, starts: torch.Tensor, longest: int, used: torch.Tensor | None
) -> torch.Tensor:
    """Which rows of a ragged batch the forward function wrote: what the others hold is anything."""
    if len(starts) == 1:
        return torch.zeros(total, dtype=torch.bool, device=starts.device)
    lengths = starts.diff().clamp(max=longest)
    if used is not None:
        lengths = torch.minimum(lengths, used)
    rows = torch.arange(total, dtype=starts.dtype, device=starts.device)
    sequence = torch.searchsorted(starts, rows, right=True) - 1
    first = sequence.clamp(0, lengths.shape[0] - 1)
    return (sequence == first) & (rows - starts[first] < lengths[first])


def _refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():  # create_graph=True: gradients of these gradients are wanted
        raise NotImplementedError(
            "attention has no second derivatives; differentiate it without create_graph=True"
        )


def _merge_keep(
    ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Keeps what the gradients of a merge take."""
    ctx.save_for_backward(*inputs, *output)
    ctx.set_materialize_grads(False)


def _merge_differentiate(
    ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    o1, lse1, o2, lse2, *merged = ctx.saved_tensors
    if dout is None and dlse is None:
        return None, None, None, None
    gradients = (dout, dlse)
    return *_of_state(o1, lse1, *merged, *gradients), *_of_state(o2, lse2, *merged, *gradients)


def _of_state(
    o: torch.Tensor,
    lse: torch.Tensor,
    merged: torch.Tensor,
    merged_lse: torch.Tensor,
    dout: torch.Tensor | None,
    dlse: torch.Tensor | None,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The gradients of a merge by one of its states, which has the share exp(lse - merged_lse) of it."""
    counts = lse.isfinite()  # elsewhere o may hold anything, and dlse may be no number
    share = torch.where(counts, (lse - merged_lse).exp(), 0)
    grown = torch.zeros_like(lse) if dlse is None else torch.where(counts, dlse, 0)
    if dout is None:
        return None, share * grown
    rows = share.transpose(-1, -2)[..., None]
    apart = torch.where(counts.transpose(-1, -2)[..., None], o.float() - merged.float(), 0)
    grown = grown + (dout.float() * apart).sum(-1).transpose(-1, -2)
    return (rows * dout.float()).to(o.dtype), share * grown


def _refuse_transforms(*_: Any) -> NoReturn:
    raise NotImplementedError(
        "attune's attention does not support the transforms of torch.func (vmap, grad, jvp, ...) yet"
    )


def _register(
    name: str,
    fake: Any,
    differentiation: tuple[_Differentiate, _Keep] | None = None,
    prepare: _Prepare | None = None,
) -> Any:
    """Defines an operator of the list of functions; returns what calls it."""
    _library.define(SCHEMAS[name], tags=_tags)
    # Every backend: what is no CUDA tensor is then refused by name.
    _library.impl(name, _implementation(name, prepare), "CompositeExplicitAutograd")
    if differentiation is None:
        # The implementation refuses gradients. A kernel here that did so would add 3 us to each call.
        _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    else:
        differentiate, keep = differentiation
        torch.library.register_autograd(
            f"attune::{name}", differentiate, setup_context=keep, lib=_library
        )
    # Without it a transform would loop over a batch, or take the result for a constant.
    _library.impl(name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    return getattr(torch.ops.attune, name).default


flash_attn = _register("flash_attn", _fakes.attention)
flash_attn_lse = _register("flash_attn_lse", _fakes.attention_lse)
varlen = _register("flash_attn_varlen", _fakes.attention_lse)
train = _register("flash_attn_train", _fakes.train, _differentiable("flash_attn_train"))
varlen_train = _register(
    "flash_attn_varlen_train", _fakes.train, _differentiable("flash_attn_varlen_train")
)
expressed = _register("attention", _fakes.attention_lse)
expressed_append = _register("attention_append", _fakes.attention_append)
expressed_train = _register(
    "attention_train", _fakes.train, _differentiable("attention_train"), _require_gradients
)
backward = _register("flash_attn_backward", _fakes.backward, prepare=_make_readable)
cached = _register("flash_attn_with_kvcache", _fakes.cached)
appended = _register("flash_attn_with_kvcache_append", _fakes.appended)
store = _register("store_kvcache", _fakes.store)
merge = _register("merge_attn_states", _fakes.merge)
merge_train = _register(
    "merge_attn_states_train", _fakes.merge_train, (_merge_differentiate, _merge_keep)
)
rotary = _register("apply_rotary", _fakes.rotary)
