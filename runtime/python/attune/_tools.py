"""explain, jit and cache: what the attune tool does, from Python; and counters."""

from __future__ import annotations

import atexit
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import _attune
from ._arguments import Pair
from ._texts import Expression, arrays_of, complete, shapes_of


@dataclass(frozen=True)
class Explanation:
    """Which kernel serves a problem, and why not the others. str() gives what the tool prints.

    Attributes:
        problem: dtype, head_dim, batch, heads, lengths, mask: "bf16 d128 b1 hq16 hk16 lq64 lk64".
        device: The GPU's name, "sm_90" for one that is not here, or "emulator".
        variant: The kernel that serves the problem, or that came closest.
        source: Where it comes from: out of the library, or compiled at first use and kept on disk.
        frozen: The ready kernel that ATTUNE_COMPILE=frozen takes; None where that refuses the call,
            unless the kernel is on disk, and in the emulator.
        grid: Thread blocks of the launch; None where no kernel serves the problem.
        threads: Of a block; None likewise.
        shared_bytes: Shared memory of a block; None likewise.
        refusals: Why no kernel serves the problem; empty where one does.
        considered: Each ready kernel, and why it cannot serve the problem.
        loaded: The kernel that this process serves such calls with so far; None before the first.
        coming: The one that is being compiled in the background and is to take over from it, or None.
        text: All of it as a few lines to read.
    """

    problem: str
    device: str
    variant: str
    source: Literal["ready", "nvrtc", "host compiler"]
    frozen: str | None
    grid: tuple[int, int, int] | None
    threads: int | None
    shared_bytes: int | None
    refusals: tuple[str, ...]
    considered: dict[str, tuple[str, ...]] = field(repr=False)
    loaded: str | None
    coming: str | None
    text: str = field(repr=False)

    @property
    def served(self) -> bool:
        """Whether a kernel serves the problem."""
        return not self.refusals

    def __str__(self) -> str:
        lines = [self.text.rstrip("\n")]
        if self.loaded is not None:
            lines.append(f"this process serves it with {self.loaded}")
        if self.coming is not None:
            lines.append(f"{self.coming} is being compiled and takes over")
        return "\n".join(lines)


@dataclass(frozen=True)
class Counters:
    """What has been done for this process's calls so far.

    Attributes:
        hits: Look-ups that found their kernel loaded: one for each kernel of a call.
        misses: Look-ups that did not, or that waited for a better one.
        ready_loads: Kernels loaded that were ready (embedded, or of a bundle).
        disk_loads: Kernels loaded from the disk.
        compiles: Kernels compiled.
        compile_ms: Time that compilers took, on any thread.
        bytes_loaded: Size of the kernels' images.
        fallbacks: Times that a more general kernel was put in a better one's place, because that is
            compiled in the background, could not be, or because there is no compiler.
        swaps: Times that a kernel took over from such a one.
        failures: Look-ups and background compilations that ended in an error.
        pending: Background compilations that wait or run, now.
    """

    hits: int
    misses: int
    ready_loads: int
    disk_loads: int
    compiles: int
    compile_ms: float
    bytes_loaded: int
    fallbacks: int
    swaps: int
    failures: int
    pending: int


@dataclass(frozen=True)
class CacheEntry:
    """A kernel on disk.

    Attributes:
        name: Of the variant.
        arch: What it was compiled for: "sm_90", or "emulator".
        hash: 128 bits in hex over all that decides its machine code.
        bytes: Size of its files.
        valid: Whether it is whole. One that is not is compiled again when it is next needed.
        problem: Why it is not; empty where it is.
        folder: Where its files are.
    """

    name: str
    arch: str
    hash: str
    bytes: int
    valid: bool
    problem: str
    folder: Path


class KernelCache:
    """The kernels that were compiled at run time and kept on disk, for each process to find."""

    @property
    def root(self) -> Path | None:
        """$ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune, else None."""
        root = _attune.cache_root()
        return Path(root) if root else None

    def list(self) -> tuple[CacheEntry, ...]:
        """Each kernel, checked."""
        return tuple(CacheEntry(*row[:-1], folder=Path(row[-1])) for row in _attune.cache_list())

    def verify(self) -> tuple[CacheEntry, ...]:
        """The kernels that are not whole: none, if all is well."""
        return tuple(entry for entry in self.list() if not entry.valid)

    def clear(self) -> int:
        """Removes every kernel from the disk and returns how many; loaded ones still serve."""
        return _attune.cache_clear()

    def __repr__(self) -> str:
        return f"KernelCache(root={str(self.root)!r})"


#: The kernels on disk.
cache = KernelCache()

# A compiler's thread must not outlive the interpreter, and a record is to have all calls.
atexit.register(_attune.finish)


def counters(*, emulator: bool | None = None) -> Counters:
    """What has been done so far for calls on GPUs and in the emulator.

    When kernels are compiled follows from the environment variable ATTUNE_COMPILE at the first call:
    "missing" (the default: where no ready kernel serves, or decode's would read keys three times
    and more), "frozen" (never: ready kernels and those on disk), "exact" (where a ready kernel
    would pad head_dim) or "background" (likewise, but by a thread, while the padding kernel
    serves).

    Args:
        emulator: Whether those with NumPy arrays alone count, or the others alone; None: all.

    Raises:
        ValueError: ATTUNE_COMPILE is something else.
    """
    return Counters(**_attune.counters(emulator))


def explain(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    batch: int | None = None,
    seqlen_q: int | None = None,
    seqlen_k: int | None = None,
    heads_q: int | None = None,
    heads_kv: int | None = None,
    head_dim: int | None = None,
    head_dim_v: int | None = None,
    arch: str | None = None,
) -> Explanation:
    """Which kernel would serve a problem, and why not the others. Loads and compiles nothing.

    The problem is that of attention(q, k, v, causal=causal, ...), or it is told by its sizes:

        print(attune.explain(dtype="bf16", head_dim=128, heads_q=32, heads_kv=8, arch="h200"))

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), float16 or bfloat16; of its memory nothing is read.
        k: (batch, seqlen_k, heads_kv, head_dim).
        v: as k, or with another head_dim.
        causal: Query i sees the keys j <= i + seqlen_k - seqlen_q.
        window_size: As attention has it, and so are the three that follow.
        softcap: A cap on scores, before the expression.
        score: What a score becomes, a text or a function.
        mask: Which keys a query sees, likewise.
        params: All arrays that they look up, of which dtype and shape are read. None where texts say
            what those are: score="s + slope[h] where slope: fp32[head]".
        dtype: "fp16" or "bf16" (the default), or the dtype of a framework.
        batch: Sequences; 1 by default.
        seqlen_q: Queries of each sequence; 1024 by default.
        seqlen_k: Keys of each sequence; seqlen_q by default.
        heads_q: Query heads; 16 by default.
        heads_kv: Key/value heads, which divide heads_q; heads_q by default.
        head_dim: Up to 256; 128 by default.
        head_dim_v: Of v and the result; head_dim by default.
        arch: A GPU that need not be here ("h200", "a100", "l40s", ...; "sm_90" is the usual one of
            that architecture), or "emulator". By default where the arrays are; for sizes the
            current GPU, or "h200" where there is none.

    Raises:
        TypeError: Arrays together with sizes; a dtype that is not served.
        ValueError: A shape, size, expression or architecture that is not accepted.
        RuntimeError: The arrays' GPU cannot be asked.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
    sizes = (batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v)
    scores = _scores(causal, window_size, softcap, score, mask, params)
    return Explanation(**_attune.explain(*_problem((q, k, v), dtype, sizes, scores, arch)))


def jit(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    causal: bool = False,
    window_size: Pair = (-1, -1),
    softcap: float = 0.0,
    score: Expression | None = None,
    mask: Expression | None = None,
    params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    batch: int | None = None,
    seqlen_q: int | None = None,
    seqlen_k: int | None = None,
    heads_q: int | None = None,
    heads_kv: int | None = None,
    head_dim: int | None = None,
    head_dim_v: int | None = None,
    arch: str | None = None,
) -> str:
    """Makes a problem's kernel ready, so that a CUDA graph capture or a first call finds it loaded.

    A ready kernel is loaded; another one is fetched from the disk cache, or compiled and kept
    there. For a GPU that need not be here, named by `arch`, one that is not ready is compiled to
    the disk cache and nothing is loaded.

    Args:
        q, k, v, causal, window_size, softcap, score, mask, params, dtype, batch, seqlen_q, seqlen_k,
            heads_q, heads_kv, head_dim, head_dim_v, arch: As for explain. Which kernel it is follows
            from dtype, head_dim, head_dim_v, causal, whether there is a window or a softcap, score
            and mask, heads_q / heads_kv and, where there are several tiles, seqlen_q and seqlen_k;
            batch is only held to the limits.

    Returns:
        The name of the variant.

    Raises:
        TypeError, ValueError: As explain does.
        NotImplementedError: No kernel can serve the problem there.
        RuntimeError: No GPU, and no arch; the driver or a compiler failed.

    Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
    """
    sizes = (batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v)
    scores = _scores(causal, window_size, softcap, score, mask, params)
    return _attune.jit(*_problem((q, k, v), dtype, sizes, scores, arch))


_SIZE_NAMES = ("batch", "seqlen_q", "seqlen_k", "heads_q", "heads_kv", "head_dim", "head_dim_v")
_BF16 = {"bf16": True, "bfloat16": True, "fp16": False, "float16": False}
_DLPACK_CUDA = (2, 13)  # kDLCUDA and kDLCUDAManaged

_Sizes = tuple[int, int, int, int, int, int, int]
_Shapes = list[tuple[str, bool, tuple[int, ...]]]
#: causal, window_size, softcap, score, mask and params.
_Scores = tuple[bool, Pair, float, str | None, str | None, _Shapes]


def _scores(
    causal: bool,
    window_size: Pair,
    softcap: float,
    score: Expression | None,
    mask: Expression | None,
    params: Mapping[str, Any] | None,
) -> _Scores:
    """What a call does to its scores: its expressions as texts, of its arrays what those are."""
    arrays = arrays_of(params)
    return (bool(causal), window_size, softcap, *complete(score, mask, arrays), shapes_of(arrays))


def _problem(
    arrays: tuple[Any, Any, Any],
    dtype: Any,
    sizes: tuple[int | None, ...],
    scores: _Scores,
    arch: str | None,
) -> tuple[
    bool, tuple[int, ...], bool, Pair, float, str | None, str | None, _Shapes, str | None, int | None
]:
    """What _attune takes: bf16, sizes, what happens to scores, arch and the ordinal of the GPU."""
    if all(array is None for array in arrays):
        bf16 = _is_bf16("dtype is", "bf16" if dtype is None else dtype)
        return bf16, _checked(_with_defaults(*sizes)), *scores, arch, None
    for name, value in zip(("dtype", *_SIZE_NAMES), (dtype, *sizes)):
        if value is not None:
            raise TypeError(f"{name} is given together with arrays, which have their own")
    q, k, v = arrays
    own_sizes = _sizes_of(q, k, v)
    place = _place(q) if arch is None else (arch, None)
    return _is_bf16("q has dtype", q.dtype), _checked(own_sizes), *scores, *place


def _with_defaults(
    batch: int | None,
    seqlen_q: int | None,
    seqlen_k: int | None,
    heads_q: int | None,
    heads_kv: int | None,
    head_dim: int | None,
    head_dim_v: int | None,
) -> _Sizes:
    """The tool's."""
    seqlen_q = 1024 if seqlen_q is None else seqlen_q
    heads_q = 16 if heads_q is None else heads_q
    head_dim = 128 if head_dim is None else head_dim
    return (
        1 if batch is None else batch,
        seqlen_q,
        seqlen_q if seqlen_k is None else seqlen_k,
        heads_q,
        heads_q if heads_kv is None else heads_kv,
        head_dim,
        head_dim if head_dim_v is None else head_dim_v,
    )


def _checked(sizes: _Sizes) -> tuple[int, ...]:
    """Integers that the C ABI has room for."""
    result = []
    for name, size in zip(_SIZE_NAMES, sizes):
        try:
            result.append(operator.index(size))
        except TypeError:
            kind = type(size).__qualname__
            raise TypeError(f"{name} is a {kind}; it must be an integer") from None
        if not 0 <= size < 2**31:
            raise ValueError(f"{name} is {size}; it must fit 31 bits")
    return tuple(result)


def _is_bf16(subject: str, dtype: Any) -> bool:
    name = getattr(dtype, "__name__", str(dtype))  # a class of NumPy or JAX, else an instance
    bf16 = _BF16.get(name.removeprefix("torch."))
    if bf16 is None:
        raise TypeError(f"{subject} {name}; it must be fp16 (float16) or bf16 (bfloat16)")
    return bf16


def _sizes_of(q: Any, k: Any, v: Any) -> _Sizes:
    """Of arrays that flash_attn_func would take, as it pads them."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not hasattr(array, "__dlpack_device__"):
            raise TypeError(
                f"{name} is a {type(array).__qualname__}; "
                "it must be a PyTorch CUDA tensor, a CuPy, JAX or NumPy array"
            )
        if array.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {array.dtype}; it must be {q.dtype}, as q is")
        shape = tuple(array.shape)
        if len(shape) != 4:
            raise ValueError(
                f"{name} has shape {shape}; it must be (batch, seqlen, heads, head_dim)"
            )
    batch, seqlen_q, heads_q, head_dim = q.shape
    _, seqlen_k, heads_kv, _ = k.shape
    head_dim_v = v.shape[3]
    for name, array, own in (("k", k, head_dim), ("v", v, head_dim_v)):
        expected = (batch, seqlen_k, heads_kv, own)
        if tuple(array.shape) != expected:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; it must be {expected}")
    return (
        batch,
        seqlen_q,
        seqlen_k,
        heads_q,
        heads_kv,
        -(-head_dim // 8) * 8,
        -(-head_dim_v // 8) * 8,
    )


def _place(q: Any) -> tuple[str | None, int | None]:
    """The architecture that stands for the array's device, or its ordinal where it is a GPU."""
    device_type, ordinal = q.__dlpack_device__()
    if device_type in _DLPACK_CUDA:
        return None, ordinal
    if type(q).__module__.partition(".")[0] == "numpy":
        return "emulator", None
    raise ValueError(f"q is on the device {q.device}; it must be on a CUDA device")
