"""What the operators return, without data: the shapes, dtypes and strides that torch.compile traces.

A fake takes the tensors that say so, the first of its operator, and leaves the other arguments alone. It refuses
gradients too: a compiled graph runs its operators on detached tensors, so it is here that they are seen.
"""

from __future__ import annotations

from typing import Any

import torch


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    _refuse_gradients(q=q, k=k, v=v)
    return _like(q, v.shape[-1])


def attention_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention(q, k, v), _lse(q)


def train(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(q, v.shape[-1]), _lse(q)


def backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _refuse_gradients(dout=dout, q=q, k=k, v=v)
    return _gradient(q), _gradient(k), _gradient(v)


def cached(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache)
    return _like(q, q.shape[-1]), _lse(q)


def appended(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(k=k, v=v)
    return cached(q, k_cache, v_cache)


def attention_append(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_new: torch.Tensor,
    v_new: torch.Tensor,
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    return appended(q, k, v, k_new, v_new)


def store(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *_: Any,
    **__: Any,
) -> None:
    _refuse_gradients(k=k, v=v, k_cache=k_cache, v_cache=v_cache)


def merge(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    _refuse_gradients(o1=o1, lse1=lse1, o2=o2, lse2=lse2)
    return merge_train(o1, lse1, o2, lse2)


def merge_train(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(o1, o1.shape[-1]), lse1.new_empty(lse1.shape)


def rotary(q: torch.Tensor, k: torch.Tensor | None, *_: Any, **__: Any) -> None:
    _refuse_gradients(q=q)
    if k is not None:
        _refuse_gradients(k=k)


def _like(q: torch.Tensor, head_dim: int) -> torch.Tensor:
    """An output with the rows of q."""
    if q.shape[-1] % 8 != 0 or head_dim % 8 != 0:
        # What comes of a padded q: a view of its width.
        return q.new_empty((*q.shape[:-1], -(-head_dim // 8) * 8))[..., :head_dim]
    if head_dim == q.shape[-1]:
        return torch.empty_like(q)
    return q.new_empty((*q.shape[:-1], head_dim))


def _gradient(x: torch.Tensor) -> torch.Tensor:
    """Of an input that may come as a padded copy."""
    return _like(x, x.shape[-1])


def _lse(q: torch.Tensor) -> torch.Tensor:
    """Of each row of q: (batch, heads, seqlen), of a ragged batch (heads, total)."""
    *batch, rows, heads, _head_dim = q.shape
    return q.new_empty((*batch, heads, rows), dtype=torch.float32)


def _refuse_gradients(**tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{name} requires a gradient, which this operator has not; "
                "call it under torch.no_grad() where none is needed"
            )
