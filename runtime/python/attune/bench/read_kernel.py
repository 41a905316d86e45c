"""Reading memory once, as fast as it goes: what decoding is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl


@triton.jit
def _read(memory, sums, blocks, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    for block in range(program, blocks, tl.num_programs(0)):
        total += tl.load(memory + block.to(tl.int64) * BLOCK + offsets)
    tl.store(sums + program, tl.sum(total))


def readers(memory: torch.Tensor) -> list[Callable[[], torch.Tensor]]:
    """Ways to read all of an int32 tensor, whose length 2^18 divides: each returns partial sums.

    512 threads with four independent 16-byte loads each, in grids of several sizes: which is the
    fastest differs between GPUs.
    """
    block = 512 * 4 * 4
    processors = torch.cuda.get_device_properties(memory.device).multi_processor_count

    def reader(programs: int) -> Callable[[], torch.Tensor]:
        sums = torch.empty(programs, dtype=torch.int32, device=memory.device)

        def read() -> torch.Tensor:
            _read[(programs,)](memory, sums, memory.numel() // block, BLOCK=block, num_warps=16)
            return sums

        return read

    return [reader(processors * waves) for waves in (2, 4, 16)]
