"""The jit suite: what the first call of a problem costs a fresh process with empty caches.

`python -m attune.bench.first_call CONTENDER CASE` is that process: it prints a Result as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .report import Result
from .suites import SUITES, Case

_TIMEOUT_S = 300
#: Where Attune, Triton, inductor and the driver keep what they compiled.
_CACHES = ("ATTUNE_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")


def measure(case: Case, contender: str) -> Result:
    """The time from the call to its answer, imports and the CUDA context apart."""
    with tempfile.TemporaryDirectory() as root:
        environment = os.environ | {name: str(Path(root, name.lower())) for name in _CACHES}
        command = [sys.executable, "-m", "attune.bench.first_call", contender, case.name]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Result("failed", note=f"no answer within {_TIMEOUT_S} s")
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Result("failed", note=reason)
    return Result.from_json(json.loads(lines[-1]))


def _first_call(contender: str, case: Case) -> Result:
    import torch

    from .contenders import prepare
    from .inputs import Inputs
    from .reference import Judge
    from .runner import Call, Verdict, run_case

    inputs = Inputs.of(case)
    judge = Judge(inputs)  # this also gives the process its CUDA context
    torch.cuda.synchronize()
    elapsed_ms = 0.0

    def timed() -> Call:
        nonlocal elapsed_ms
        start = time.perf_counter()
        answer = prepare(contender, inputs)()
        torch.cuda.synchronize()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        return lambda: answer

    def verdict(call: Call) -> Verdict:
        return judge.verdict(call())

    result = run_case({contender: timed}, verdict, lambda calls: [[elapsed_ms]])[contender]
    if contender == "attune" and result.status == "timed":
        compiled = any(Path(os.environ["ATTUNE_CACHE_DIR"]).rglob("*.cubin"))
        result = dataclasses.replace(
            result, note="compiled by NVRTC" if compiled else "served by a ready kernel"
        )
    return result


if __name__ == "__main__":
    found = _first_call(sys.argv[1], Case.parse(SUITES["jit"].operation, sys.argv[2]))
    print(json.dumps(found.to_json()))
