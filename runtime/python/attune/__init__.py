"""Attention kernels cut to your shapes, for PyTorch, CuPy, JAX and NumPy arrays.

The functions have the names, arguments and shapes of flash-attn 2:

    import attune

    out = attune.flash_attn_func(q, k, v, causal=True)  # (batch, seqlen, heads, head_dim)

flash_attn_varlen_func and its packed siblings take ragged batches. PyTorch tensors that require a gradient
get one, and flash_attn_backward gives it to whoever asks for it. For serving, flash_attn_with_kvcache attends to a K/V
cache, contiguous or in pages, store_kvcache writes into one, merge_attn_states makes one result
of two over different keys, and apply_rotary rotates queries and keys where they lie.

Where they run follows from the arrays:

* PyTorch CUDA tensors and CuPy arrays: on their GPU (compute capability 8.0 or newer), on the
  caller's current stream. The call returns once the kernel is queued. The first call for a problem
  may compile a kernel, which is then kept on disk; call once before a CUDA graph is captured.
* JAX arrays: on their GPU, as an operation of XLA, under jax.jit, jax.vmap and jax.shard_map too.
* NumPy arrays: in an emulator, which runs the same kernel thread by thread on the CPU and checks
  every access. It is slow, and meant for tests.

float16 and bfloat16 are served (bfloat16 in NumPy by the package ml_dtypes), with float32 inside.
An argument that no kernel serves yet raises NotImplementedError and names it; wrong arrays raise
TypeError or ValueError and say what came and what is accepted.

attention takes scores and masks as expressions, texts or Python functions: any mask, any score.

Of the attune tool there are explain (which kernel serves a problem, and why), jit (have that kernel
ready before it is needed) and cache (the kernels that were compiled and kept on disk); counters
says how calls were served so far, and the environment variable ATTUNE_COMPILE when to compile.

attune.torch has the same functions for torch.compile and torch.export, and registers Attune with
Hugging Face transformers. `python -m attune.bench` times Attune beside its peers on this machine.

Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
"""

from ._attention import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ._attune import version as __version__
from ._backward import flash_attn_backward
from ._expressions import attention
from ._rotary import apply_rotary
from ._serving import flash_attn_with_kvcache, merge_attn_states, store_kvcache
from ._tools import CacheEntry, Counters, Explanation, KernelCache, cache, counters, explain, jit
from ._tracing import exp2, log2, maximum, minimum, real, select, tanh

__all__ = [
    "CacheEntry",
    "Counters",
    "Explanation",
    "KernelCache",
    "__version__",
    "apply_rotary",
    "attention",
    "cache",
    "counters",
    "exp2",
    "explain",
    "flash_attn_backward",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "jit",
    "log2",
    "maximum",
    "merge_attn_states",
    "minimum",
    "real",
    "select",
    "store_kvcache",
    "tanh",
]
