"""A run on this machine's GPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from .report import Report, Result
from .suites import PEERS, SUITES, Case, Suite

if TYPE_CHECKING:
    from .errors import ErrorMeter
    from .gpu import EventClock


class Unavailable(Exception):
    """This machine lacks what a run needs."""


def begin(suites: Collection[str], peers: Collection[str] | None) -> tuple[Report, list[str]]:
    """A report without results, and the contenders: with `peers` None those that are found here.

    Raises Unavailable.
    """
    try:
        import torch
    except ImportError as error:
        raise Unavailable(
            f"PyTorch is needed ({error}): pip install 'attune-kernels[bench]'"
        ) from error
    if not torch.cuda.is_available():
        raise Unavailable(f"PyTorch {torch.__version__} finds no GPU that it can use")
    from . import contenders, gpu

    found = contenders.found()
    for peer in peers or ():
        if peer not in found:
            raise Unavailable(f"the peer {peer} cannot be imported here")
    chosen = [who for who in found if peers is None or who in ("attune", *peers)]
    facts = gpu.machine()
    versions = {who: contenders.version(who) for who in chosen if who in PEERS}
    facts |= {who: version for who, version in versions.items() if version}
    needs_ceilings = any(SUITES[name].on_gpu for name in suites)
    return Report(facts, gpu.ceilings() if needs_ceilings else None), chosen


def measured(
    suite: Suite,
    cases: Sequence[Case],
    contenders: Collection[str],
    rounds: int | None,
    tell: Callable[[str], None],
) -> Iterator[tuple[str, dict[str, Result]]]:
    """The name and the results of each of these cases of a suite; `tell` is told the name first.

    A suite that puts Attune beside itself has no use for contenders that it does not name.
    """
    from .errors import ErrorMeter
    from .gpu import EventClock

    meter = ErrorMeter()
    # Products draw all the power that a card may have, and its clock goes on falling for seconds.
    clock = EventClock(rounds, heating=2.0 if suite.figure == "TFLOP/s" else 0.5)
    chosen = contenders
    if suite.beside is not None:
        chosen = ("attune", *(who for who in suite.peers if who in contenders), suite.beside)
    for case in cases:
        tell(case.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peers' own, about why a backend refuses
            results = _results(suite, case, chosen, clock, meter)
        yield case.name, results


def matching(suite: Suite, case: re.Pattern[str]) -> list[Case]:
    """The cases whose names have a match."""
    return [one for one in suite.cases if case.search(one.name)]


def _results(
    suite: Suite, case: Case, contenders: Collection[str], clock: EventClock, meter: ErrorMeter
) -> dict[str, Result]:
    from . import first_call, host, lengths, reading
    from .contenders import prepare
    from .inputs import Inputs
    from .reference import Judge
    from .runner import Call, Verdict, run_case

    if suite.figure == "host µs":
        return host.measure(case, contenders)
    if suite.figure == "first call ms":
        return {who: first_call.measure(case, who) for who in contenders}
    if suite.figure == "RMS error":
        return meter.measure(case, contenders)
    if case.shortest is not None:
        return lengths.measure(case, clock)
    if suite.beside == "read":
        return reading.measure(case, clock)
    inputs = Inputs.of(case)

    unlike: list[Call] = []  # those whose answer is another one, as it should be

    def preparing(who: str) -> Callable[[], Call]:
        def prepared() -> Call:
            call = prepare(who, inputs)
            if who == suite.beside and case.is_unlike_plain:
                unlike.append(call)
            return call

        return prepared

    right = Judge(inputs)

    def judge(call: Call) -> Verdict:
        return Verdict(0, 0) if call in unlike else right(call)

    return run_case({who: preparing(who) for who in contenders}, judge, clock)
