"""The read suite: decoding beside a plain streaming read of as many bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from .contenders import prepare
from .inputs import Inputs
from .reference import Judge
from .report import Result
from .runner import Call, Clock, Verdict, run_case
from .suites import Case

#: Ways to read all of an int32 tensor; each returns partial sums.
Readers = Callable[[torch.Tensor], Sequence[Callable[[], torch.Tensor]]]


def measure(
    case: Case, clock: Clock, device: str = "cuda", readers: Readers | None = None
) -> dict[str, Result]:
    """The time of the case's keys and values, and that of the fastest read of as many bytes."""
    inputs = Inputs.of(case, device)
    attention = Judge(inputs)
    memory = torch.randint(16, (case.kv_bytes // 4,), device=device, dtype=torch.int32)
    total = int(memory.sum(dtype=torch.int64))
    reads = (readers or _readers)(memory)

    def judge(call: Call) -> Verdict:
        if call not in reads:
            return attention(call)
        return Verdict(error=abs(int(call().sum(dtype=torch.int64)) - total), allowed=0)

    def preparing(call: Call) -> Callable[[], Call]:
        return lambda: call

    contenders = {f"read {place}": preparing(read) for place, read in enumerate(reads)}
    results = run_case({"attune": lambda: prepare("attune", inputs)} | contenders, judge, clock)
    attune = results.pop("attune")
    fastest = min(results.values(), key=lambda one: math.inf if one.ms is None else one.ms)
    return {"attune": attune, "read": fastest}


def _readers(memory: torch.Tensor) -> Sequence[Callable[[], torch.Tensor]]:
    from .read_kernel import readers

    return readers(memory)
