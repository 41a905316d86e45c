"""A report as one picture: bars of what each contender reaches, and the ceiling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .report import Ceilings, Report, Results, cases_of, gb_s, tflops
from .suites import CONTENDERS, OWN_CALLS, SUITES, Case, Suite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Told apart by the colour-blind too (Wong, Nature Methods 8, 441, 2011).
_COLOURS = {
    "attune": "#d55e00",
    "fa2": "#56b4e9",
    "cudnn": "#009e73",
    "flex": "#e69f00",
    "flash_attn": "#0072b2",
    "fa3": "#cc79a7",
    "fa4": "#f0e442",
    "flashinfer": "#777777",
} | dict.fromkeys(OWN_CALLS, "#f0b27a")
_NAMES = CONTENDERS | OWN_CALLS
_WIDTH = 10.0  # inches
_PANEL_HEIGHT = 2.4
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "savefig.facecolor": "white",  # of its own, so that a dark page leaves it legible
    "svg.fonttype": "path",
    "svg.hashsalt": "attune",  # the same report gives the same file
}


@dataclass(frozen=True)
class Panel:
    """Groups of bars, one for each label; None where there is no time.

    A contender without any time has no bars.
    """

    title: str
    unit: str
    labels: list[str]
    bars: dict[str, list[float | None]]  # of each contender
    ceiling: float | None = None
    ceiling_label: str = ""
    axis: str = ""


def panels(suite: Suite, results: Results, ceilings: Ceilings | None) -> list[list[Panel]]:
    """Rows of panels: by length one for each head_dim, variety and mask, else one of all cases."""
    cases = cases_of(suite.name, results)
    if not suite.by_length:
        title = f"{suite.name}: {suite.about}"
        return [[_panel(suite, title, cases, [_lines(case) for case in cases], results, ceilings)]]
    rows = []
    for kind in dict.fromkeys((case.head_dim, case.variety) for case in cases):
        alike = [case for case in cases if (case.head_dim, case.variety) == kind]
        row = []
        for mask in ("full", "causal"):
            part = [case for case in alike if case.mask == mask]
            if part:
                title = f"{suite.name}, head_dim {kind[0]}, {mask} {kind[1]}".rstrip()
                labels = [_short(case.seqlen_k) for case in part]
                row.append(_panel(suite, title, part, labels, results, ceilings))
        rows.append(row)
    rows[-1] = [dataclasses.replace(panel, axis="sequence length") for panel in rows[-1]]
    return rows


def _panel(
    suite: Suite,
    title: str,
    cases: Sequence[Case],
    labels: list[str],
    results: Results,
    ceilings: Ceilings | None,
) -> Panel:
    def bar(case: Case, who: str) -> float | None:
        result = results[case.name].get(who)
        if result is None or result.ms is None:
            return None
        if suite.figure == "TFLOP/s":
            return tflops(case, result.ms)
        return gb_s(case, result.ms) if suite.on_gpu else result.ms

    bars = {who: [bar(case, who) for case in cases] for who in _NAMES}
    bars = {who: values for who, values in bars.items() if any(values)}
    ceiling, label = None, ""
    if ceilings is not None and suite.figure == "TFLOP/s":
        ceiling, label = ceilings.cublas_tflops, "cuBLAS"
    elif ceilings is not None and suite.on_gpu:
        ceiling, label = ceilings.read_gb_s, "streaming read"
    unit = {"TFLOP/s": "TFLOP/s", "GB/s": "GB/s", "µs": "GB/s"}.get(suite.figure, "ms")
    return Panel(title, unit, labels, bars, ceiling, label)


def drawn(suites: Iterable[str]) -> list[str]:
    """Those of these suites that a picture shows: with times on the GPU, or of first calls."""
    return [name for name in suites if SUITES[name].figure not in ("host µs", "RMS error")]


def write(report: Report, path: Path) -> None:
    """A picture of the suites that are drawn, as .svg or .png.

    Raises ValueError where no suite of the report can be drawn.
    """
    rows = [
        row
        for name in drawn(report.suites)
        for row in panels(SUITES[name], report.suites[name], report.ceilings)
    ]
    if not rows:
        raise ValueError(f"nothing is drawn of {', '.join(report.suites)}")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(_STYLE):
        height = _PANEL_HEIGHT * len(rows) + 0.8
        figure = plt.figure(figsize=(_WIDTH, height), layout="constrained")
        strips = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for strip, row in zip(strips, rows):
            for axes, panel in zip(strip.subplots(1, len(row), squeeze=False, sharey=True)[0], row):
                _draw(axes, panel)
        shown = [who for who in _NAMES if any(who in panel.bars for row in rows for panel in row)]
        swatches = [plt.Rectangle((0, 0), 1, 1, color=_COLOURS[who]) for who in shown]
        figure.legend(
            swatches,
            [_NAMES[who] for who in shown],
            loc="outside upper center",
            ncols=len(shown),
            frameon=False,
            title=_where(report),
        )
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)
        plt.close(figure)


def _draw(axes: Axes, panel: Panel) -> None:
    width = min(0.84 / max(1, len(panel.bars)), 0.2)
    for index, (who, values) in enumerate(panel.bars.items()):
        offset = (index - (len(panel.bars) - 1) / 2) * width
        for group, value in enumerate(values):
            if value is not None:
                axes.bar(group + offset, value, width * 0.94, color=_COLOURS[who])
    if panel.unit == "ms":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    if panel.ceiling is not None:
        axes.axhline(panel.ceiling, color="#444444", linewidth=0.8, linestyle=(0, (5, 3)))
        axes.annotate(
            f"{panel.ceiling_label} {panel.ceiling:.0f}",
            (0.0, panel.ceiling),
            xycoords=("axes fraction", "data"),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=8,
            color="#444444",
        )
        highest = max(
            [panel.ceiling, *(value or 0 for bars in panel.bars.values() for value in bars)]
        )
        axes.set_ylim(0, 1.12 * highest)
    axes.set_xlim(-0.6, len(panel.labels) - 0.4)
    axes.set_xticks(range(len(panel.labels)), panel.labels)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.unit)
    axes.set_xlabel(panel.axis)
    axes.label_outer()


def _where(report: Report) -> str:
    facts = [report.machine.get("gpu"), report.machine.get("date", "")[:10]]
    return ", ".join(fact for fact in facts if fact)


def _lines(case: Case) -> str:
    """'d128 b8' over 'hq32 hk8' over 'L2048' or 'L2048 page64'."""
    parts = case.name.removesuffix(f" {case.mask}").split(" ")
    length = next(place for place, part in enumerate(parts) if part.startswith("L"))
    return "\n".join(" ".join(line) for line in (parts[:2], parts[2:length], parts[length:]))


def _short(length: int) -> str:
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)
