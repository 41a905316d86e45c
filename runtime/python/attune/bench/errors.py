"""The suites of errors: how far answers are from attention in float64, not how long they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch

from .contenders import prepare
from .inputs import Inputs
from .reference import Judge, attention
from .report import Result
from .runner import Call, Verdict, judge_case
from .suites import Case


def measure(case: Case, contenders: Collection[str], device: str = "cuda") -> dict[str, Result]:
    """The root mean square error of each contender's answer, where the Judge finds it right.

    Of gradients that of the one which the case looks at; all have to be right."""
    inputs = Inputs.of(case, device)
    judge_answer = Judge(inputs)
    part = 0 if case.gradient is None else ("dq", "dk", "dv").index(case.gradient)
    exact = attention(inputs, arithmetic=torch.float64)[part]

    def preparing(who: str) -> Callable[[], Call]:
        def answered() -> Call:
            answer = judge_answer.answer(prepare(who, inputs))
            return lambda: answer  # what is measured is what was judged

        return answered

    def judge(call: Call) -> Verdict:
        return judge_answer.verdict(call())

    def errors(calls: Sequence[Call]) -> list[Result]:
        answers = (call() for call in calls)
        return [
            Result("right", rms=rms(x if case.gradient is None else x[part], exact))
            for x in answers
        ]

    return judge_case({who: preparing(who) for who in contenders}, judge, errors)


def rms(answer: torch.Tensor, exact: torch.Tensor) -> float:
    """The root mean square of how far they are apart, over all elements and in float64."""
    return float((answer.double() - exact).square().mean().sqrt())
