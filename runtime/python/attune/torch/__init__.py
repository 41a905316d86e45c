"""Attention for PyTorch programs that are compiled, exported or made of transformers models.

The functions are those of the package attune, for PyTorch CUDA tensors alone, as operators that are
registered with torch.library:

    import attune.torch

    @torch.compile(fullgraph=True)
    def attend(q, k, v):
        return attune.torch.flash_attn_func(q, k, v, causal=True)

torch.compile and torch.export take them, with dynamic shapes too, and CUDA graphs capture them. They
run in Python: what AOTInductor compiles for a process without Python cannot call them. The
operators are torch.ops.attune.flash_attn, flash_attn_lse, flash_attn_train, flash_attn_varlen,
flash_attn_varlen_train, flash_attn_backward, flash_attn_with_kvcache, flash_attn_with_kvcache_append,
store_kvcache, merge_attn_states, merge_attn_states_train, apply_rotary, attention, attention_append and
attention_train; importing this module registers them and does nothing else. It needs PyTorch 2.4 or
newer.

Of inputs that require a gradient flash_attn_func, flash_attn_varlen_func, their packed siblings,
attention and merge_attn_states have one, through the operators whose names end in train; gradients of
attention have no gradient again. The other functions, keys in a cache, scores that do more than add
to s, and parameters and alibi_slopes that require a gradient raise NotImplementedError, and so do the
transforms of torch.func. Where torch.compile(fullgraph=True) traces such a call, its own error holds
this one. Call them under torch.no_grad() or torch.inference_mode() where no gradient is needed.

torch.autocast casts nothing here, as with flash-attn: float32 raises TypeError. The results are the
same bits each time, whatever torch.use_deterministic_algorithms says, but for gradients of calls that
say deterministic=False.

For Hugging Face transformers, register_transformers() makes attn_implementation="attune" known.
"""

from __future__ import annotations

from ._attention import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ._backward import flash_attn_backward
from ._expressions import attention
from ._rotary import apply_rotary
from ._serving import flash_attn_with_kvcache, merge_attn_states, store_kvcache

__all__ = [
    "apply_rotary",
    "attention",
    "flash_attn_backward",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "merge_attn_states",
    "register_transformers",
    "store_kvcache",
]


def register_transformers() -> None:
    """Makes attn_implementation="attune" known to Hugging Face transformers (4.53 or newer).

        attune.torch.register_transformers()
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune", dtype="auto")

    (Before 4.56 `dtype` is `torch_dtype`.)

    Served are causal and full attention without padding, with grouped heads and without copies of
    them, with sliding windows, soft caps (Gemma 2) and sinks (gpt-oss): prefill, prefill in chunks, and
    decoding with a cache that grows (DynamicCache). What is not
    served raises NotImplementedError where the mask is made or where attention is called, and names
    it: padding, packed sequences, masks of the caller's own, a StaticCache with room left, chunks,
    position biases, attention weights as a result. float32 queries, keys and values are cast inside
    torch.autocast, as sdpa casts them.

    Models train, too. With torch.compile(fullgraph=True), leave attention_mask out and use a cache:
    whether a mask hides anything, or position_ids mark packed sequences, is read from their data.

    Raises:
        ImportError: transformers is missing, or is too old.
    """
    from . import _transformers

    _transformers.register()
