"""The operators attune::flash_attn and attune::flash_attn_lse, registered with PyTorch.

Tensors are those of attune.flash_attn_func, and so are the errors: the implementation is that function.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .. import flash_attn_func

# Inductor may otherwise hand over another layout than the one that was traced.
_tags = (
    torch.Tag.pt2_compliant_tag,
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)
# define and impl cost a call 2 us, torch.library.custom_op 7.
_library = torch.library.Library("attune", "DEF")


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    return flash_attn_func(q, k, v, softmax_scale=softmax_scale, causal=causal)


def _attention_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return flash_attn_func(
        q, k, v, softmax_scale=softmax_scale, causal=causal, return_attn_probs=True
    )[:2]


def _fake_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    # A compiled graph runs its operators on detached tensors, so it is here that gradients are seen.
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{name} requires a gradient, and there is no backward yet; "
                "call it under torch.no_grad() where none is needed"
            )
    head_dim_v = v.shape[-1]
    return (
        torch.empty_like(q)
        if head_dim_v == q.shape[-1]
        else q.new_empty((*q.shape[:-1], head_dim_v))
    )


def _fake_attention_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _fake_attention(q, k, v, softmax_scale, causal)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    return out, lse


def _refuse_transforms(*_: Any) -> NoReturn:
    raise NotImplementedError(
        "attune's attention does not support the transforms of torch.func (vmap, grad, jvp, ...) yet"
    )


def _register(name: str, result: str, attention: Any, fake: Any) -> Any:
    _library.define(
        f"{name}(Tensor q, Tensor k, Tensor v, float? softmax_scale=None, bool causal=False)"
        f" -> {result}",
        tags=_tags,
    )
    # Every backend: what is no CUDA tensor is then refused by name.
    _library.impl(name, attention, "CompositeExplicitAutograd")
    # The implementation refuses gradients. A kernel here that did so would add 3 us to each call.
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    # Without it a transform would loop over a batch, or take the result for a constant.
    _library.impl(name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    return getattr(torch.ops.attune, name).default


flash_attn = _register("flash_attn", "Tensor", _attention, _fake_attention)
flash_attn_lse = _register(
    "flash_attn_lse", "(Tensor out, Tensor softmax_lse)", _attention_lse, _fake_attention_lse
)
