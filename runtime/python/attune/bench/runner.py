"""One case: check every contender, then time or measure those whose answers are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import Result, summarise

#: Queues one call of a contender and returns its answer.
Call = Callable[[], Any]
#: Times calls side by side: the samples of each, in ms.
Clock = Callable[[Sequence[Call]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Verdict:
    """An answer's largest error and what is allowed there, both absolute."""

    error: float
    allowed: float

    @property
    def right(self) -> bool:
        return self.error <= self.allowed  # a NaN is not


def run_case(
    contenders: Mapping[str, Callable[[], Call]], judge: Callable[[Call], Verdict], clock: Clock
) -> dict[str, Result]:
    """The result of each contender, in their order: times by the clock. See judge_case."""

    def timed(calls: Sequence[Call]) -> list[Result]:
        return [Result("timed", **summarise(samples)) for samples in clock(calls)]

    return judge_case(contenders, judge, timed)


def judge_case(
    contenders: Mapping[str, Callable[[], Call]],
    judge: Callable[[Call], Verdict],
    measure: Callable[[Sequence[Call]], Sequence[Result]],
) -> dict[str, Result]:
    """The result of each contender, in their order.

    Args:
        contenders: What prepares the call of each; it or the call raises NotImplementedError where
            the contender does not serve the case.
        judge: Makes the call once and compares its answer with the reference.
        measure: Gets only the calls that were judged right.
    """
    results: dict[str, Result] = {}
    right: dict[str, tuple[Call, Verdict]] = {}
    for name, prepare in contenders.items():
        try:
            call = prepare()
            verdict = judge(call)
        except NotImplementedError as error:
            results[name] = Result("not served", note=_first_line(error))
        except Exception as error:  # noqa: BLE001  a peer's failure must not end the run
            results[name] = Result("failed", note=f"{type(error).__name__}: {_first_line(error)}")
        else:
            if verdict.right:
                right[name] = (call, verdict)
            else:
                results[name] = Result("wrong", error=verdict.error, allowed=verdict.allowed)
    measured = measure([call for call, _ in right.values()]) if right else []
    for (name, (_, verdict)), result in zip(right.items(), measured):
        results[name] = dataclasses.replace(result, error=verdict.error, allowed=verdict.allowed)
    return {name: results[name] for name in contenders}


def rotations(count: int, rounds: int) -> Iterator[list[int]]:
    """An order of `count` calls for each round: rotated, and after a full turn reversed."""
    for turn in range(rounds):
        order = [(turn + place) % count for place in range(count)]
        yield order if turn // count % 2 == 0 else order[::-1]


def rounds_for(total_ms: float, target_ms: float = 600.0, fewest: int = 11, most: int = 101) -> int:
    """How often to time calls that take `total_ms` together."""
    return max(fewest, min(most, round(target_ms / total_ms)))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
