"""A measurement as a value, to and from JSON, and the figures that follow from it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .suites import OWN_CALLS, SUITES, Case, Suite

Status = Literal["timed", "right", "wrong", "not served", "failed"]
#: case: contender: result
Results = dict[str, dict[str, "Result"]]

_FORMAT = 1


@dataclass(frozen=True)
class Result:
    """What came of one contender in one case. Only `timed` has a time, and only `right` an `rms`.

    `error` and `allowed` are those of the worst part of the answer, absolute; a NaN stands for an
    answer that is not finite. `rms` is the root mean square of how far all of the answer is from
    attention in float64. `note` says why there is no figure, or what a time includes.
    """

    status: Status
    ms: float | None = None  # median
    quartiles: tuple[float, float] | None = None  # first and third, ms
    samples: int = 0
    error: float | None = None
    allowed: float | None = None
    rms: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if (self.status == "timed") != (self.ms is not None):
            raise ValueError(f"a result that is '{self.status}' has a time of {self.ms} ms")
        if (self.status == "right") != (self.rms is not None):
            raise ValueError(f"a result that is '{self.status}' has an RMS error of {self.rms}")

    def to_json(self) -> dict[str, Any]:
        entry = dataclasses.asdict(self)
        for name in ("error", "allowed"):  # JSON has no NaN and no infinity
            if entry[name] is not None and not math.isfinite(entry[name]):
                entry[name] = str(entry[name])
        return {name: value for name, value in entry.items() if value not in (None, "")}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Result:
        fields = {one.name: entry[one.name] for one in dataclasses.fields(cls) if one.name in entry}
        for name in ("error", "allowed"):
            if name in fields:
                fields[name] = float(fields[name])
        if "quartiles" in fields:
            fields["quartiles"] = tuple(fields["quartiles"])
        return cls(**fields)


@dataclass(frozen=True)
class Ceilings:
    """What this machine reached in the same run: bf16 cuBLAS at 8192^3, and reading memory once."""

    cublas_tflops: float
    read_gb_s: float
    read_by: str  # "Triton" or "torch.sum"


@dataclass
class Report:
    """One run: where and when, what the machine reaches, and the results of each suite."""

    machine: dict[str, str]
    ceilings: Ceilings | None
    suites: dict[str, Results] = field(default_factory=dict)

    def failures(self) -> list[str]:
        """What a run must not hide: each wrong answer, and each failure of Attune."""
        return [
            f"{suite}, {case}: {contender} is {result.status}"
            for suite, results in self.suites.items()
            for case, row in results.items()
            for contender, result in row.items()
            if result.status == "wrong"
            or (result.status == "failed" and contender.startswith("attune"))
        ]

    def select(
        self, suites: Collection[str], case: re.Pattern[str], peers: Collection[str] | None
    ) -> Report:
        """The part that is asked for; without `peers` each contender."""

        def kept(contender: str, suite: str) -> bool:
            # Host time is told by calls that are no contenders, too.
            own = contender == "attune" or contender in OWN_CALLS
            return peers is None or own or contender in peers or suite == "host"

        chosen = {
            suite: {
                name: {who: result for who, result in row.items() if kept(who, suite)}
                for name, row in results.items()
                if case.search(name)
            }
            for suite, results in self.suites.items()
            if suite in suites
        }
        return dataclasses.replace(
            self, suites={suite: results for suite, results in chosen.items() if results}
        )

    def write(self, path: Path) -> None:
        """As JSON, with the rates that follow from the times beside them."""
        suites = [
            {
                "name": name,
                "cases": [
                    {
                        "case": case.name,
                        "results": {
                            who: result.to_json() | _rate(SUITES[name], case, result)
                            for who, result in results[case.name].items()
                        },
                    }
                    for case in cases_of(name, results)
                ],
            }
            for name, results in self.suites.items()
        ]
        ceilings = None if self.ceilings is None else dataclasses.asdict(self.ceilings)
        document = {
            "format": _FORMAT,
            "machine": self.machine,
            "ceilings": ceilings,
            "suites": suites,
        }
        text = json.dumps(document, indent=1, ensure_ascii=False)
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(path)  # who is stopped here leaves the file of before

    @classmethod
    def read(cls, path: Path) -> Report:
        """What `write` wrote. Raises OSError, or ValueError where the file is no report."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
            suites = {
                suite["name"]: {
                    Case.parse(SUITES[suite["name"]].operation, case["case"]).name: {
                        who: Result.from_json(result) for who, result in case["results"].items()
                    }
                    for case in suite["cases"]
                }
                for suite in document["suites"]
            }
            ceilings = document["ceilings"]
            return cls(document["machine"], ceilings and Ceilings(**ceilings), suites)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no report of attune.bench: {error}") from error


def cases_of(suite: str, results: Results) -> list[Case]:
    """The cases of these results, in their order."""
    return [Case.parse(SUITES[suite].operation, name) for name in results]


def summarise(samples: Sequence[float]) -> dict[str, Any]:
    """The fields of a Result that follow from the times of its calls, in ms."""
    if len(samples) < 2:
        return {"ms": samples[0], "samples": 1}
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return {
        "ms": statistics.median(samples),
        "quartiles": (first, third),
        "samples": len(samples),
    }


def tflops(case: Case, ms: float) -> float:
    return case.flop / ms / 1e9


def gb_s(case: Case, ms: float) -> float:
    """With keys and values counted once."""
    return case.kv_bytes / ms / 1e6


def _rate(suite: Suite, case: Case, result: Result) -> dict[str, float]:
    if result.ms is None or not suite.on_gpu:
        return {}
    if suite.figure == "TFLOP/s":
        return {"tflops": tflops(case, result.ms)}
    return {"gb_s": gb_s(case, result.ms)}


def speedup(row: Mapping[str, Result], peer: str) -> float | None:
    """How many times as fast as this peer Attune is, where both have a time."""
    ours, theirs = row.get("attune"), row.get(peer)
    if ours is None or theirs is None or ours.ms is None or theirs.ms is None:
        return None
    return theirs.ms / ours.ms


def speedups(results: Results, peer: str) -> list[float]:
    """Of each case in which both have a time."""
    return _of_each(results, peer, speedup)


def error_ratio(row: Mapping[str, Result], peer: str) -> float | None:
    """Attune's root mean square error divided by this peer's, where both have one."""
    ours, theirs = row.get("attune"), row.get(peer)
    if ours is None or theirs is None or ours.rms is None or theirs.rms is None:
        return None
    return ours.rms / theirs.rms


def error_ratios(results: Results, peer: str) -> list[float]:
    """Of each case in which both have an error."""
    return _of_each(results, peer, error_ratio)


def _of_each(
    results: Results, peer: str, ratio: Callable[[Mapping[str, Result], str], float | None]
) -> list[float]:
    found = (ratio(row, peer) for row in results.values())
    return [one for one in found if one is not None]


def share_of_ceiling(
    suite: Suite, case: Case, row: Mapping[str, Result], ceilings: Ceilings | None
) -> float | None:
    """Attune's part of what the machine reaches: of reading for decoding, else of cuBLAS."""
    ours = row.get("attune")
    if ours is None or ours.ms is None or ceilings is None:
        return None
    if suite.operation == "decode":
        return gb_s(case, ours.ms) / ceilings.read_gb_s
    return tflops(case, ours.ms) / ceilings.cublas_tflops
