"""Attention kernels cut to your shapes, for PyTorch, CuPy and NumPy arrays.

The functions have the names, arguments and shapes of flash-attn 2:

    import attune

    out = attune.flash_attn_func(q, k, v, causal=True)  # (batch, seqlen, heads, head_dim)

Where they run follows from the arrays:

* PyTorch CUDA tensors and CuPy arrays: on their GPU (compute capability 8.0 or newer), on the
  caller's current stream. The call returns once the kernel is queued. The first call for a problem
  may compile a kernel, which is then kept on disk; call once before a CUDA graph is captured.
* NumPy arrays: in an emulator, which runs the same kernel thread by thread on the CPU and checks
  every access. It is slow, and meant for tests.

float16 and bfloat16 are served (bfloat16 in NumPy by the package ml_dtypes), with float32 inside.
An argument that no kernel serves yet raises NotImplementedError and names it; wrong arrays raise
TypeError or ValueError and say what came and what is accepted.

Paper: FlashAttention-2, https://arxiv.org/abs/2307.08691.
"""

from ._attention import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from ._attune import version as __version__

__all__ = [
    "__version__",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
]
