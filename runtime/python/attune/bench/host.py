"""The host suite: how long a call from Python keeps the host."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune

from .inputs import Inputs
from .reference import Judge
from .report import Result
from .runner import Call, Verdict, run_case
from .suites import CONTENDERS, HOST_CALLS, Case

_CALLS = 200  # of a batch: fewer than the driver queues before it makes the host wait
_BATCHES = 9


@dataclass(frozen=True)
class _Timed:
    call: Call
    attends: bool = True
    backend: SDPBackend | None = None

    def _chosen(self) -> contextlib.AbstractContextManager[object]:
        return sdpa_kernel(self.backend) if self.backend is not None else contextlib.nullcontext()

    def __call__(self) -> torch.Tensor:
        with self._chosen():
            return self.call()

    def batch_ms(self) -> float:
        """Of one call in a batch; the backend is chosen outside: that takes longer than a call."""
        with self._chosen():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(_CALLS):
                self.call()
            return (time.perf_counter() - start) / _CALLS * 1e3


def measure(case: Case, contenders: Collection[str]) -> dict[str, Result]:
    """The calls of HOST_CALLS that are here, with the time of each in its fastest batch."""
    inputs = Inputs.of(case)
    q, k, v = inputs.q, inputs.k, inputs.v
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def sdpa() -> torch.Tensor:
        return F.scaled_dot_product_attention(qt, kt, vt, is_causal=case.causal).transpose(1, 2)

    calls = {
        "attune": _Timed(lambda: attune.flash_attn_func(q, k, v, causal=case.causal)),
        "fa2": _Timed(sdpa, backend=SDPBackend.FLASH_ATTENTION),
        "cudnn": _Timed(sdpa, backend=SDPBackend.CUDNN_ATTENTION),
        "empty_like": _Timed(lambda: torch.empty_like(q), attends=False),
        "launch": _Timed(lambda: torch.cuda._sleep(0), attends=False),
    }
    if importlib.util.find_spec("attune.torch") is not None:
        operator = importlib.import_module("attune.torch").flash_attn_func
        calls["attune.torch"] = _Timed(lambda: operator(q, k, v, causal=case.causal))
    judge_attention = Judge(inputs)

    def judge(call: Call) -> Verdict:
        assert isinstance(call, _Timed)
        return judge_attention(call) if call.attends else Verdict(0.0, 0.0)

    def clock(right: Sequence[Call]) -> list[list[float]]:
        fastest = [float("inf")] * len(right)
        for _ in range(_BATCHES):
            for index, call in enumerate(right):
                assert isinstance(call, _Timed)
                fastest[index] = min(fastest[index], call.batch_ms())
        return [[ms] for ms in fastest]

    asked = [name for name in HOST_CALLS if name in contenders or name not in CONTENDERS]
    return run_case({name: _always(calls[name]) for name in asked if name in calls}, judge, clock)


def _always(call: _Timed) -> Callable[[], Call]:
    return lambda: call
