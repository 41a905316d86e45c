"""The suites of errors: how far answers are from attention in float64, not how long they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from .contenders import prepare
from .inputs import Inputs
from .reference import Judge, attention
from .report import Result
from .runner import Call, Verdict, judge_case
from .suites import Case


class ErrorMeter:
    """Measures the errors of one case after another.

    Cases that look at different gradients of the same inputs share the references and the answers.
    """

    def __init__(self, device: str = "cuda") -> None:
        self._device = device
        self._case: Case | None = None

    def measure(self, case: Case, contenders: Collection[str]) -> dict[str, Result]:
        """The root mean square error of each contender's answer, where the Judge finds it right.

        Of gradients that of the one which the case looks at; all have to be right."""
        self._work_on(case)
        part = 0 if case.gradient is None else ("dq", "dk", "dv").index(case.gradient)

        def preparing(who: str) -> Callable[[], Call]:
            def answered() -> Call:
                if who not in self._answers:
                    self._answers[who] = self._judge.answer(prepare(who, self._inputs))
                answer = self._answers[who]
                return lambda: answer  # what is measured is what was judged

            return answered

        def judge(call: Call) -> Verdict:
            return self._judge.verdict(call())

        def errors(calls: Sequence[Call]) -> list[Result]:
            answers = (call() for call in calls)
            return [
                Result("right", rms=rms(x if case.gradient is None else x[part], self._exact[part]))
                for x in answers
            ]

        return judge_case({who: preparing(who) for who in contenders}, judge, errors)

    def _work_on(self, case: Case) -> None:
        """Works out what is not there from the case before."""
        inputs = replace(case, name="", gradient=None)
        if inputs == self._case:
            return
        self._case = inputs
        self._inputs = Inputs.of(case, self._device)
        self._judge = Judge(self._inputs)
        self._exact = attention(self._inputs, arithmetic=torch.float64)
        self._answers: dict[str, Any] = {}


def rms(answer: torch.Tensor, exact: torch.Tensor) -> float:
    """The root mean square of how far they are apart, over all elements and in float64."""
    return float((answer.double() - exact).square().mean().sqrt())
