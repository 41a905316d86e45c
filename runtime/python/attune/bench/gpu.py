"""This machine: what it is, what it reaches at best, and its clock."""

from __future__ import annotations

import datetime
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence

import torch

import attune

from .report import Ceilings
from .runner import Call, rotations, rounds_for

_FLUSH_BYTES = 256 << 20  # beyond every L2
_FASTEST_CLOCK = 2.2e9  # Hz; no GPU's clock is faster by much


class EventClock:
    """Times calls side by side with CUDA events, each after the L2 was overwritten.

    Before that they run back to back until the card is as hot as under work that lasts: a cool card
    clocks higher, and a kernel that draws less power then looks better than it is.

    The GPU is kept waiting for as long as the host may take to queue a call, so that what is
    measured is the kernels and not the host. `rounds` is how often each is timed; None follows from
    how long they take. `heating` is in seconds.
    """

    def __init__(self, rounds: int | None = None, heating: float = 0.5) -> None:
        self.rounds = rounds
        self.heating = heating
        self.flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def __call__(self, calls: Sequence[Call]) -> list[list[float]]:
        waits = [int(2 * min(_host_seconds(call), 1e-3) * _FASTEST_CLOCK) for call in calls]
        warm = self._time(calls, waits, 3)
        self._heat(calls)
        rounds = self.rounds or rounds_for(sum(min(times) for times in warm))
        return self._time(calls, waits, rounds)

    def _heat(self, calls: Sequence[Call]) -> None:
        until = time.perf_counter() + self.heating
        while time.perf_counter() < until:
            for call in calls:
                call()
            torch.cuda.synchronize()

    def _time(self, calls: Sequence[Call], waits: Sequence[int], rounds: int) -> list[list[float]]:
        events: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in calls]
        for order in rotations(len(calls), rounds):
            for index in order:
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                self.flush.zero_()
                torch.cuda._sleep(waits[index])
                start.record()
                calls[index]()
                stop.record()
                events[index].append((start, stop))
        torch.cuda.synchronize()
        return [[start.elapsed_time(stop) for start, stop in series] for series in events]


def _host_seconds(call: Call) -> float:
    fastest = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
    torch.cuda.synchronize()
    return fastest


def ceilings() -> Ceilings:
    """What cuBLAS and a streaming read reach here and now, on random data."""
    clock = EventClock()
    found = Ceilings(_cublas_tflops(clock), *_read_gb_s(clock))
    torch.cuda.empty_cache()  # other processes, those of the jit suite too, need memory
    return found


def _cublas_tflops(clock: EventClock) -> float:
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    (samples,) = clock([lambda: a @ b])
    return 2 * size**3 / statistics.median(samples) / 1e9


def _read_gb_s(clock: EventClock) -> tuple[float, str]:
    """The rate of the fastest way, and its name."""
    free, _ = torch.cuda.mem_get_info()
    words = min(8 << 30, free // 2) // (1 << 20) * (1 << 18)
    memory = torch.randint(16, (words,), device="cuda", dtype=torch.int32)
    ways: dict[str, list[Call]] = {"torch.sum": [lambda: memory.sum(dtype=torch.int64)]}
    if reads := _triton_reads(memory):
        ways["Triton"] = reads
    best_ms, name = min(
        (statistics.median(samples), name)
        for name, calls in ways.items()
        for samples in clock(calls)
    )
    return memory.nbytes / best_ms / 1e6, name


def _triton_reads(memory: torch.Tensor) -> list[Call]:
    """Empty where Triton, or the C compiler that it needs, is not here."""
    try:
        from .read_kernel import readers

        reads = readers(memory)
        sums = {int(read().sum(dtype=torch.int64)) for read in reads}
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError):
        return []
    if sums != {int(memory.sum(dtype=torch.int64))}:
        raise RuntimeError("the Triton kernel did not read all of the memory")
    return list(reads)


def machine() -> dict[str, str]:
    """The GPU, and the versions of what runs on it."""
    cudnn = torch.backends.cudnn.version() or 0  # 91900 is 9.19.0
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "gpu": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "pytorch": torch.__version__.split("+")[0],
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "attune": attune.__version__,
        "python": platform.python_version(),
    }
    return {name: value for name, value in facts.items() if value}


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.split("\n", 1)[0].strip()
