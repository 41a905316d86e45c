"""JAX arrays: the kernels as foreign functions of XLA.

XLA gives it the memory of its results and the stream, so that nothing waits, it runs under jax.jit
as it does outside, and no buffer that JAX takes for immutable is written behind its back.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _attune

_PREFILL = "attune_prefill"
_BACKWARD = "attune_backward"
jax.ffi.register_ffi_target(_PREFILL, _attune.xla_prefill(), platform="CUDA")
jax.ffi.register_ffi_target(_BACKWARD, _attune.xla_backward(), platform="CUDA")


class _Options(NamedTuple):
    """Hashable, so that jit may keep a compilation of each."""

    softmax_scale: float
    causal: bool
    window_left: int
    window_right: int
    softcap: float


def require_usable(name: str, array: jax.Array) -> None:
    """Raises where the array is known to lie elsewhere than on one GPU; a traced one lies nowhere."""
    if isinstance(array, jax.core.Tracer):
        return
    devices = array.devices()
    if len(devices) > 1:
        raise NotImplementedError(
            f"{name} lies on {len(devices)} devices; one is served, so call it in jax.shard_map"
        )
    (device,) = devices
    if device.platform == "cpu":
        raise ValueError(f"{name} is on the device {device}; it must be on a CUDA device")


def padded(array: jax.Array, extent: int) -> jax.Array:
    """The array, its last dimension extended with zeros to this extent."""
    before = [(0, 0)] * (array.ndim - 1)
    return jnp.pad(array, (*before, (0, extent - array.shape[-1])))


def attend(
    arrays: Sequence[jax.Array],
    softmax_scale: float,
    causal: bool,
    window_left: int,
    window_right: int,
    softcap: float,
    return_lse: bool,
) -> jax.Array | tuple[jax.Array, jax.Array, None]:
    """The output, or (output, LSE, None), of checked arrays: (q, k, v), (q, kv) or (qkv,)."""
    options = _Options(softmax_scale, causal, window_left, window_right, softcap)
    results = _compiled(tuple(arrays), options, return_lse)
    return (*results, None) if return_lse else results[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _prefill(
    arrays: tuple[jax.Array, ...], options: _Options, return_lse: bool
) -> tuple[jax.Array, ...]:
    batch, seqlen_q, *_, heads_q, _ = arrays[0].shape
    head_dim_v = arrays[-1].shape[-1]
    results = [jax.ShapeDtypeStruct((batch, seqlen_q, heads_q, head_dim_v), arrays[0].dtype)]
    if return_lse:
        results.append(jax.ShapeDtypeStruct((batch, heads_q, seqlen_q), jnp.float32))
    return _call(_PREFILL, results, arrays, options)


def _keep(
    arrays: tuple[jax.Array, ...], options: _Options, return_lse: bool
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """The results, and what their gradients take."""
    results = _prefill(arrays, options, True)
    return results if return_lse else results[:1], (*arrays, *results)


def _differentiate(
    options: _Options,
    _return_lse: bool,
    kept: tuple[jax.Array, ...],
    gradients: tuple[jax.Array, ...],
) -> tuple[tuple[jax.Array, ...]]:
    return (_backward((*kept, *gradients), len(kept) - 2, options),)


_prefill.defvjp(_keep, _differentiate)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _backward(
    operands: tuple[jax.Array, ...], inputs: int, options: _Options
) -> tuple[jax.Array, ...]:
    """The gradients of the first operands, which are _prefill's arrays."""
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in operands[:inputs]]
    return _call(_BACKWARD, results, operands, options)


@_backward.defjvp
def _refuse_second_derivatives(*_: object) -> None:
    raise NotImplementedError("attention has no second derivatives")


def _call(
    name: str,
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
    options: _Options,
) -> tuple[jax.Array, ...]:
    call = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
    return tuple(
        call(
            *operands,
            causal=np.bool_(options.causal),
            softcap=np.float32(options.softcap),
            softmax_scale=np.float32(options.softmax_scale),
            window_left=np.int32(options.window_left),
            window_right=np.int32(options.window_right),
        )
    )


_compiled = jax.jit(_prefill, static_argnums=(1, 2))
