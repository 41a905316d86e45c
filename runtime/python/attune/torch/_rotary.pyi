# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
import torch

def apply_rotary(
    q: torch.Tensor,
    k: torch.Tensor | None,
    rotary_cos: torch.Tensor,
    rotary_sin: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,
    seqlen_offsets: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
) -> None:
    """attune.apply_rotary of PyTorch tensors, through an operator that torch.compile takes.

    Rotates queries and keys in place by the angles of their positions (rotary embedding).

    For prefill, as flash_attn_with_kvcache and store_kvcache rotate what goes into a cache: the
    results are those that are stored there.

    Positions and offsets stay on the GPU, as with flash_attn_with_kvcache. A row at a position that
    rotary_cos has no row for stays as it is.

    The tensors are on a CUDA device.

    Args:
        q: (batch, seqlen, heads_q, head_dim), or (total, heads_q, head_dim) for the rows of all
            sequences, float16 or bfloat16, written in place. head_dim is a multiple of 8; strides and
            alignment are those of flash_attn_func.
        k: as q, of the same positions and with any number of heads; None: only q is rotated. The
            two must not overlap, but may be parts of one array.
        rotary_cos: (rotations, rotary_dim / 2), contiguous, of the dtype of q: the first rotary_dim
            columns are rotated, a multiple of 16. For one offset that all sequences have, pass
            rotary_cos[offset:] and rotary_sin[offset:].
        rotary_sin: as rotary_cos.
        positions: (batch, seqlen), or (total,) where q has no batch, int32, contiguous, on the device
            of q: the row of rotary_cos and rotary_sin for each row of q and k; None: row i of a
            sequence has seqlen_offsets + i.
        seqlen_offsets: (batch,), int32, on the device of q: the position of each sequence's first row, as
            cache_seqlens is in flash_attn_with_kvcache; None: 0. Not together with positions.
        rotary_interleaved: Whether the columns 2i and 2i + 1 make a pair (GPT-J), or i and
            i + rotary_dim / 2 (GPT-NeoX, Llama).

    Raises:
        ValueError: An array that is read-only, and what flash_attn_func raises it for.

    The other errors are those of flash_attn_with_kvcache.

    Paper: RoFormer, https://arxiv.org/abs/2104.09864.
    """
