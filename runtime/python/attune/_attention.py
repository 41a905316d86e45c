"""flash-attn 2's functions over the C ABI."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from . import _attune
from ._frameworks import Framework, framework_of, full_name

Array = TypeVar("Array")  # torch.Tensor, cupy.ndarray or numpy.ndarray


def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """softmax(softmax_scale * q @ k.T + mask) @ v, for each batch and head.

    Grouped and multi-query attention: k and v may have fewer heads than q; query head i then uses
    head i // (heads_q / heads_kv) of them.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16. head_dim is a multiple of 8 up
            to 256 and contiguous; the other strides are multiples of 8 elements in any order, and
            the first element is aligned to 16 bytes.
        k: (batch, seqlen_k, heads_kv, head_dim), where heads_kv divides heads_q; framework, device
            and dtype are those of q.
        v: as k.
        dropout_p: Only 0 is served.
        softmax_scale: Finite, 0 or more. By default 1 / sqrt(head_dim).
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom
            right. A query that sees no key gives zeros.
        window_size: Only (-1, -1), no window, is served.
        softcap: Only 0, no cap, is served.
        alibi_slopes: Only None is served.
        deterministic: Either: the same inputs on the same device give the same bits.
        return_attn_probs: Also return the log-sum-exp of each row.

    Returns:
        An array like q. With return_attn_probs a tuple (out, softmax_lse, None) as flash-attn has
        it without dropout: softmax_lse is (batch, heads_q, seqlen_q), float32, natural logarithm,
        and -inf (flash-attn 2: +inf) where a query sees no key.

    Raises:
        TypeError: An array of no known framework, of another one than q, or of a dtype that is not
            served; a scale that is no number.
        ValueError: A shape, stride, alignment, device or scale that is not accepted.
        NotImplementedError: An argument, a shape or a GPU that no kernel serves yet; a PyTorch
            tensor that requires a gradient.
        RuntimeError: No GPU, or the driver or a compiler failed; the emulator found a fault.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    return _attention(("q", "k", "v"), q, k, v, softmax_scale, causal, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """flash_attn_func of keys and values in one array, without a copy.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim).
        kv: (batch, seqlen_k, 2, heads_kv, head_dim): keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    k, v = _unpack("kv", kv, 2)
    return _attention(("q", "kv", "kv"), q, k, v, softmax_scale, causal, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Array | tuple[Array, Array, None]:
    """flash_attn_func of queries, keys and values in one array, without a copy.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim): queries, keys, then values.

    The other arguments, the result, the errors and the paper are those of flash_attn_func.
    """
    _refuse_unserved(dropout_p, window_size, softcap, alibi_slopes)
    q, k, v = _unpack("qkv", qkv, 3)
    return _attention(("qkv", "qkv", "qkv"), q, k, v, softmax_scale, causal, return_attn_probs)


def _refuse_unserved(
    dropout_p: float, window_size: tuple[int, int], softcap: float, alibi_slopes: Any
) -> None:
    if dropout_p != 0:
        raise NotImplementedError(f"dropout_p is {dropout_p}; only 0 is served yet")
    if window_size not in ((-1, -1), [-1, -1]):
        raise NotImplementedError(f"window_size is {window_size}; only (-1, -1) is served yet")
    if softcap != 0:
        raise NotImplementedError(f"softcap is {softcap}; only 0 is served yet")
    if alibi_slopes is not None:
        raise NotImplementedError(
            f"alibi_slopes is a {full_name(type(alibi_slopes))}; only None is served yet"
        )


def _unpack(name: str, packed: Any, parts: int) -> tuple[Any, ...]:
    """Views of the parts of (batch, seqlen, parts, heads, head_dim)."""
    framework_of(name, packed)
    shape = tuple(packed.shape)
    if len(shape) != 5 or shape[2] != parts:
        raise ValueError(
            f"{name} has shape {shape}; it must be (batch, seqlen, {parts}, heads, head_dim)"
        )
    return tuple(packed[:, :, part] for part in range(parts))


def _attention(
    names: tuple[str, str, str],
    q: Any,
    k: Any,
    v: Any,
    softmax_scale: float | None,
    causal: bool,
    return_lse: bool,
) -> Any:
    framework = framework_of(names[0], q)
    bf16 = framework.is_bf16(q)
    if bf16 is None:
        raise TypeError(f"{names[0]} has dtype {q.dtype}; it must be float16 or bfloat16")
    for name, array in zip(names, (q, k, v)):
        if array is not q:
            _require_same_kind(framework, name, array, names[0], q)
        framework.require_usable(name, array)
    sizes = _sizes(names, q.shape, k.shape, v.shape)
    strides = [_strides(framework, name, array) for name, array in zip(names, (q, k, v))]
    batch, seqlen_q, _, heads_q, _, head_dim = sizes
    scale = head_dim**-0.5 if softmax_scale is None else _number("softmax_scale", softmax_scale)

    out = framework.empty_like(q)
    lse = framework.empty_float32((batch, heads_q, seqlen_q), q) if return_lse else None

    def launch(emulator: bool, stream: int) -> None:
        _attune.prefill(
            emulator,
            bf16,
            sizes,
            framework.address(q),
            strides[0],
            framework.address(k),
            strides[1],
            framework.address(v),
            strides[2],
            framework.address(out),
            framework.strides("out", out),
            0 if lse is None else framework.address(lse),
            scale,
            bool(causal),
            stream,
        )

    framework.run(launch, q)
    return (out, lse, None) if return_lse else out


def _require_same_kind(framework: Framework, name: str, array: Any, name_q: str, q: Any) -> None:
    if not isinstance(array, framework.array_type):
        raise TypeError(
            f"{name} is a {full_name(type(array))}; "
            f"it must be a {framework.type_name}, as {name_q} is"
        )
    if array.dtype != q.dtype:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be {q.dtype}, as {name_q} is")
    if framework.device(array) != framework.device(q):
        raise ValueError(
            f"{name} is on the device {framework.device(array)}; "
            f"it must be on {framework.device(q)}, as {name_q} is"
        )


def _strides(framework: Framework, name: str, array: Any) -> tuple[int, ...]:
    strides = framework.strides(name, array)
    if strides[3] != 1:
        raise ValueError(
            f"{name} has strides {strides}, in elements; the last dimension must be contiguous"
        )
    return strides


@functools.lru_cache(maxsize=1024)  # a model calls with few shapes, again and again
def _sizes(
    names: tuple[str, str, str], q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> tuple[int, int, int, int, int, int]:
    """Batch, seqlen_q, seqlen_k, heads_q, heads_kv and head_dim of three shapes that fit together."""
    for name, shape in zip(names, (q, k, v)):
        if len(shape) != 4:
            raise ValueError(
                f"{name} has shape {tuple(shape)}; it must be (batch, seqlen, heads, head_dim)"
            )
        if 0 in shape:
            raise ValueError(f"{name} has shape {tuple(shape)}; every extent must be at least 1")
    if k[0] != q[0] or k[3] != q[3]:
        raise ValueError(
            f"{names[1]} has shape {tuple(k)}; with {names[0]} of {tuple(q)} "
            f"it must be ({q[0]}, seqlen_k, heads_kv, {q[3]})"
        )
    if v != k:
        raise ValueError(
            f"{names[2]} has shape {tuple(v)}; it must be {tuple(k)}, as {names[1]} is"
        )
    if q[2] % k[2] != 0:
        raise ValueError(
            f"{names[1]} has {k[2]} heads; they must divide the {q[2]} heads of {names[0]}"
        )
    return q[0], q[1], k[1], q[2], k[2], q[3]


def _number(name: str, value: Any) -> float:
    try:
        return float(value + 0.0)  # a sum, so that a string is none
    except TypeError:
        raise TypeError(f"{name} is a {full_name(type(value))}; it must be a number") from None
