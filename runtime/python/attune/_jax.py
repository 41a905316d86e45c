"""JAX arrays: the kernels as foreign functions of XLA.

XLA gives it the memory of its results and the stream, so that nothing waits, it runs under jax.jit
as it does outside, and no buffer that JAX takes for immutable is written behind its back.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

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
    score: str = ""  # empty: none
    mask: str = ""
    params: tuple[str, ...] = ()  # the names of the arrays that expressions look up
    dropout_p: float = 0.0


class _Operands(NamedTuple):
    """What attention reads, what its derivative is told of each, or the gradient by each."""

    arrays: tuple[Any, ...]  # (q, k, v), (q, kv) or (qkv,)
    sink: Any  # or None
    state: Any  # of dropout, or None
    params: tuple[Any, ...]  # that expressions look up


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


def dropout_state(key: Any, dropout_p: float) -> jax.Array:
    """Seed and offset that a key of jax.random draws, on its device: int32, the lower half of each first."""
    if key is None:
        raise ValueError(
            f"rng_state is None; with dropout_p {dropout_p} it must be a key of jax.random"
        )
    try:
        words = jax.random.bits(key, (4,), "uint32")
    except (TypeError, ValueError) as failed:
        what = f"a {type(key).__name__} of shape {np.shape(key)}"
        raise TypeError(f"rng_state is {what}; it must be one key of jax.random") from failed
    words = words & jnp.array([2**32 - 1] * 3 + [2**12 - 1], "uint32")  # an offset is below 2^44
    return jax.lax.bitcast_convert_type(words, jnp.int32)


def attend(
    arrays: Sequence[jax.Array],
    softmax_scale: float,
    causal: bool,
    window_left: int,
    window_right: int,
    softcap: float,
    return_lse: bool,
    score: str,
    mask: str,
    params: Mapping[str, jax.Array],
    sink: jax.Array | None,
    dropout_p: float,
    state: jax.Array | None,
) -> jax.Array | tuple[jax.Array, jax.Array, None]:
    """The output, or (output, LSE, None), of checked arrays: (q, k, v), (q, kv) or (qkv,)."""
    options = _Options(
        softmax_scale,
        causal,
        window_left,
        window_right,
        softcap,
        score,
        mask,
        tuple(params),
        dropout_p,
    )
    operands = _Operands(tuple(arrays), sink, state if dropout_p else None, tuple(params.values()))
    results = _compiled(operands, options, return_lse)
    return (*results, None) if return_lse else results[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _prefill(operands: _Operands, options: _Options, return_lse: bool) -> tuple[jax.Array, ...]:
    arrays = operands.arrays
    batch, seqlen_q, *_, heads_q, _ = arrays[0].shape
    head_dim_v = arrays[-1].shape[-1]
    results = [jax.ShapeDtypeStruct((batch, seqlen_q, heads_q, head_dim_v), arrays[0].dtype)]
    if return_lse:
        results.append(jax.ShapeDtypeStruct((batch, heads_q, seqlen_q), jnp.float32))
    has_sink = operands.sink is not None
    more = [x for x in (operands.sink, operands.state) if x is not None]
    return _call(_PREFILL, results, (*arrays, *more, *operands.params), options, has_sink)


def _keep(
    primals: _Operands, options: _Options, return_lse: bool
) -> tuple[tuple[jax.Array, ...], tuple[_Operands, tuple[jax.Array, ...]]]:
    """The results, and what their gradients take."""
    for name, array in zip(options.params, primals.params):
        if array.perturbed:
            raise NotImplementedError(
                f"{name} is differentiated, and has no gradient; pass it through jax.lax.stop_gradient"
            )
    _attune.require_gradients(options.score or None, options.softcap)
    operands = jax.tree.map(lambda primal: primal.value, primals)
    results = _prefill(operands, options, True)
    return results if return_lse else results[:1], (operands, results)


def _differentiate(
    options: _Options,
    _return_lse: bool,
    kept: tuple[_Operands, tuple[jax.Array, ...]],
    gradients: Sequence[jax.Array | SymbolicZero],
) -> tuple[_Operands]:
    operands, (out, lse) = kept
    dout = gradients[0]
    if isinstance(dout, SymbolicZero):
        dout = jnp.zeros(dout.shape, dout.dtype)
    dlse = [x for x in gradients[1:] if not isinstance(x, SymbolicZero)]
    state = () if operands.state is None else (operands.state,)
    inputs = (*operands.arrays, out, lse, dout, *dlse, *state, *operands.params)
    arrays = _backward(inputs, len(operands.arrays), options)
    sink = operands.sink
    if sink is not None:
        sink = _of_sink(sink, out, lse, dout, dlse[0] if dlse else 0.0)
    return (_Operands(arrays, sink, None, (None,) * len(operands.params)),)


def _of_sink(
    sink: jax.Array, out: jax.Array, lse: jax.Array, dout: jax.Array, dlse: jax.Array | float
) -> jax.Array:
    """The gradient of a sink, which is one more key of each row, and whose value is 0."""
    rows = jnp.einsum("bihd,bihd->bhi", dout, out, preferred_element_type=jnp.float32)
    logits = sink.astype(jnp.float32)[:, None]
    share = jnp.where(jnp.isfinite(lse), jnp.exp(logits - lse), 0)
    return (share * (dlse - rows)).sum((0, 2)).astype(sink.dtype)


_prefill.defvjp(_keep, _differentiate, symbolic_zeros=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _backward(
    operands: tuple[jax.Array, ...], inputs: int, options: _Options
) -> tuple[jax.Array, ...]:
    """The gradients of the first operands, which are _prefill's arrays."""
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in operands[:inputs]]
    return _call(_BACKWARD, results, operands, options, False)


@_backward.defjvp
def _refuse_second_derivatives(*_: object) -> None:
    raise NotImplementedError("attention has no second derivatives")


def _call(
    name: str,
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
    options: _Options,
    sink: bool,
) -> tuple[jax.Array, ...]:
    # Sequences of a batch are more of one, unless what is beside them says which one they are, or is of none.
    alike = not (options.score or options.mask or sink or options.dropout_p)
    call = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all" if alike else "sequential")
    return tuple(
        call(
            *operands,
            causal=np.bool_(options.causal),
            dropout_p=np.float32(options.dropout_p),
            mask=options.mask,
            params=" ".join(options.params),
            score=options.score,
            sink=np.bool_(sink),
            softcap=np.float32(options.softcap),
            softmax_scale=np.float32(options.softmax_scale),
            window_left=np.int32(options.window_left),
            window_right=np.int32(options.window_right),
        )
    )


_compiled = jax.jit(_prefill, static_argnums=(1, 2))
