"""Attune as an attention implementation of Hugging Face transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function

from . import flash_attn_func

#: What models pass to every attention function, and what changes nothing in this one.
_WITHOUT_EFFECT = frozenset(
    {
        "cache_position",
        "deterministic",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


#: The shape of what stands for a sliding window's mask, which the model itself names to attention.
_WINDOW = (0,)


def register() -> None:
    AttentionInterface.register("attune", attend)
    AttentionMaskInterface.register("attune", require_no_mask)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function as transformers defines it.

    Args:
        module: The attention layer; its is_causal counts where the argument is None.
        query: (batch, heads_q, seqlen_q, head_dim).
        key: (batch, heads_kv, seqlen_k, head_dim).
        value: as key, or with another head_dim.
        attention_mask: None, or a window's mark, as require_no_mask returns them.
        dropout: The probability with which a weight is dropped.
        scaling: Of the scores. By default 1 / sqrt(head_dim).
        is_causal: Whether the mask is causal, aligned to the bottom right.
        sliding_window: The keys that a query sees, its own and those before it.
        softcap: Of the scores; None: none.
        s_aux: A logit of each head (attention sink), (heads_q,).
        kwargs: None or False, or what changes nothing.

    Returns:
        (batch, seqlen_q, heads_q, head_dim of value), contiguous; and None, for the weights.

    Raises:
        NotImplementedError: What is not served. The other errors are those of flash_attn_func.
    """
    if attention_mask is not None:
        if attention_mask.shape != _WINDOW:
            raise NotImplementedError(
                f"attention_mask has shape {tuple(attention_mask.shape)}; "
                "attune serves only masks that it made from 2-dimensional ones without padding"
            )
        if sliding_window is None:
            raise NotImplementedError(
                "the mask is a sliding window's, which the model does not name where it calls attention"
            )
    for name, argument in kwargs.items():
        if argument is not None and argument is not False and name not in _WITHOUT_EFFECT:
            raise NotImplementedError(f"attune serves no attention with {name} yet")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    left = -1
    if sliding_window is not None and key.shape[2] > sliding_window:
        if not is_causal:
            raise NotImplementedError(
                f"sliding_window is {sliding_window}, and there are {key.shape[2]} keys; "
                "attune serves windows with the causal mask alone"
            )
        left = sliding_window - 1

    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    device = query.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    out = flash_attn_func(
        q,
        k,
        v,
        dropout_p=dropout,
        softmax_scale=scaling,
        causal=is_causal,
        window_size=(left, -1),
        softcap=softcap or 0.0,
        learnable_sink=s_aux,
    )
    return out.contiguous(), None


def require_no_mask(
    *,
    kv_length: int,
    mask_function: Callable[..., Any],
    attention_mask: torch.Tensor | None,
    q_length: int | None = None,
    q_offset: int | torch.Tensor | None = None,
    cache_position: torch.Tensor | None = None,
    kv_offset: int = 0,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    config: Any = None,
    **kwargs: Any,
) -> torch.Tensor | None:
    """A mask function as transformers defines it, where `attend` needs no mask.

    Args:
        kv_length: Keys that the cache hands over, those that are not written yet included.
        mask_function: transformers' causal mask or its full one.
        attention_mask: (batch, tokens), bool: False where a token is padding; None for no padding.
        q_length: Queries. None before transformers 5.1, which pass cache_position.
        q_offset: The first query's position; a tensor where the cache is a static one.
        cache_position: (q_length,): the positions of the queries.
        kv_offset: The first key's position.
        local_size: Of a sliding window or a chunk.
        allow_is_causal_skip: Whether the mask is the causal one, without additions.
        allow_is_bidirectional_skip: Whether the mask is the full one, without additions.
        config: The model's, whose sliding_window tells windows from chunks.
        kwargs: Nothing that matters where there is no mask.

    Returns:
        None: there is nothing to mask, or what `attend` masks; an empty tensor where that is a window.

    Raises:
        NotImplementedError: A mask is needed, or the model never calls `attend`.
    """
    _require_interface(config)
    keys = kv_offset + kv_length
    is_local = local_size is not None and keys > local_size
    window, chunk = (
        getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")
    )
    if is_local and (window != local_size or chunk == local_size or not allow_is_causal_skip):
        raise NotImplementedError(
            f"the attention is local to {local_size} keys, and there are {keys}; "
            "attune serves the causal sliding windows that a model's config names, and no chunks yet"
        )
    causal = allow_is_causal_skip and (
        local_size is not None or mask_function is causal_mask_function
    )
    if not causal and not allow_is_bidirectional_skip:
        raise NotImplementedError(
            "attune serves only causal and full masks: no packed sequences (position_ids without "
            "attention_mask and cache, under torch.compile), no StaticCache, no masks of a model's own"
        )
    if attention_mask is not None and (attention_mask.shape[-1] < keys or not attention_mask.all()):
        raise NotImplementedError(
            "attention_mask hides tokens, and attune serves no padding yet; "
            "pass sequences of one length, without a mask"
        )
    if causal:
        _require_last_queries(keys, q_length, q_offset, cache_position)
    return torch.empty(_WINDOW) if is_local else None


def _require_interface(config: Any) -> None:
    """Raises where a model computes attention itself: without a mask, which is not made, it would see every key."""
    if config is not None and not _asks_interface(type(config).__module__):
        raise NotImplementedError(
            f"the attention of {config.model_type} models asks for no implementation; use "
            "attn_implementation='eager', or replace its forward by one that calls attune.torch, "
            "whose flash_attn_func takes alibi_slopes"
        )


@torch.compiler.assume_constant_result
def _asks_interface(configuration: str) -> bool:
    """Whether the models beside a configuration's module ask for an implementation, where attention is their own."""
    beside = configuration.rpartition(".configuration_")[0] + ".modeling_"
    models = [module for name, module in sys.modules.items() if name.startswith(beside)]
    return not any(_computes_attention(module) for module in models)


def _computes_attention(module: ModuleType) -> bool:
    """Whether a module has attention that asks for no implementation."""
    if hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        return False
    own = [one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__]
    return any(isinstance(one, type) and one.__name__.endswith("Attention") for one in own)


def _require_last_queries(
    keys: int,
    q_length: int | None,
    q_offset: int | torch.Tensor | None,
    cache_position: torch.Tensor | None,
) -> None:
    """The last query belongs to the last key: the causal mask is aligned to the bottom right."""
    if cache_position is not None:
        q_length, q_offset = cache_position.shape[0], cache_position[0]
        if q_length == 1:
            return  # these versions clear allow_is_causal_skip where a cache may have room left
    if q_length == keys:
        return
    if isinstance(q_offset, torch.Tensor):
        q_offset = int(q_offset)
    if q_offset + q_length != keys:
        raise NotImplementedError(
            f"{q_offset + q_length} of {keys} keys are written: attune serves no StaticCache with room "
            "left yet; use a DynamicCache"
        )
