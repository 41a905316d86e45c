"""A report as tables of aligned text or of Markdown."""

from __future__ import annotations

import statistics
from math import isfinite

from .report import (
    Ceilings,
    Report,
    Result,
    Results,
    cases_of,
    error_ratio,
    error_ratios,
    gb_s,
    share_of_ceiling,
    speedup,
    speedups,
    tflops,
)
from .suites import CONTENDERS, HOST_CALLS, OWN_CALLS, SUITES, Case, Suite

_ABSENT = "–"
_COLUMNS = CONTENDERS | OWN_CALLS
#: What stands beside the versions of machine(), in the order of the line.
_MACHINE = {
    "gpu": "",
    "driver": "driver ",
    "cuda": "CUDA ",
    "pytorch": "PyTorch ",
    "cudnn": "cuDNN ",
    "flash_attn": "flash-attn ",
    "fa3": "FA-3 ",
    "fa4": "FA-4 ",
    "flashinfer": "FlashInfer ",
    "attune": "Attune ",
    "date": "",
}


def heading(report: Report) -> str:
    """Where and when, and what this machine reaches."""
    parts = [
        before + report.machine[name]
        for name, before in _MACHINE.items()
        if report.machine.get(name)
    ]
    lines = [", ".join(parts)]
    if report.ceilings is not None:
        ceilings = report.ceilings
        lines.append(
            f"measured ceilings: cuBLAS bf16 8192³ {ceilings.cublas_tflops:.0f} TFLOP/s, "
            f"streaming read {ceilings.read_gb_s:.0f} GB/s ({ceilings.read_by})"
        )
    return "\n".join(lines)


def suite_text(report: Report, name: str, markdown: bool = False) -> str:
    """The title of a suite, its table, and what the table leaves unsaid."""
    suite, results = SUITES[name], report.suites[name]
    rows = _host_rows(results) if name == "host" else _rows(suite, results, report.ceilings)
    title = f"{name}: {suite.about}, {_unit(suite)}"
    table = _markdown(rows) if markdown else _aligned(rows)
    notes = _notes(results)
    listed = "\n".join(f"- {note}" if markdown else note for note in notes)
    return "\n\n".join(part for part in (title, table, listed) if part)


def _unit(suite: Suite) -> str:
    if suite.figure == "host µs":
        return "µs, the fastest batch's mean"
    if suite.figure == "first call ms":
        return "ms"
    if suite.figure == "RMS error":
        return (
            "bf16, root mean square errors; "
            "'vs' is Attune's divided by the peer's, at most 1 where it is as exact"
        )
    return f"bf16, {suite.figure}, medians"


def _rows(suite: Suite, results: Results, ceilings: Ceilings | None) -> list[list[str]]:
    present = {who for row in results.values() for who in row}
    contenders = [who for who in _COLUMNS if who in present]
    peers = [who for who in contenders if who != "attune"]
    rate = suite.figure == "µs"
    share = suite.on_gpu and ceilings is not None
    errors = suite.figure == "RMS error"
    ratio, digits = (error_ratio, 4) if errors else (speedup, 2)
    header = ["case", *(_COLUMNS[who] for who in contenders)]
    header += ["GB/s"] * rate
    header += [f"vs {_COLUMNS[who]}" for who in peers]
    header += [f"% of {'cuBLAS' if suite.figure == 'TFLOP/s' else 'read'}"] * share
    rows = [header]
    for case in cases_of(suite.name, results):
        row = results[case.name]
        ours = row.get("attune")
        cells = [case.name, *(_figure(suite, case, who, row.get(who)) for who in contenders)]
        if rate:
            read = gb_s(case, ours.ms) if ours is not None and ours.ms is not None else None
            cells.append(_number(read, 0))
        cells += [_number(ratio(row, who), digits) for who in peers]
        if share:
            part = share_of_ceiling(suite, case, row, ceilings)
            cells.append(_number(None if part is None else 100 * part, 0))
        rows.append(cells)
    ratios = [(error_ratios if errors else speedups)(results, who) for who in peers]
    worst = ("largest", max) if errors else ("lowest", min)
    if any(ratios):
        for label, of in (("geometric mean", statistics.geometric_mean), worst):
            figures = [_number(of(found) if found else None, digits) for found in ratios]
            before = [""] * (len(header) - 1 - len(peers) - share)
            rows.append([label, *before, *figures, *[""] * share])
    return rows


def _host_rows(results: Results) -> list[list[str]]:
    rows = [["case", "call", "µs", "beyond the launch"]]
    for case, row in results.items():
        launch = row.get("launch")
        for who, label in HOST_CALLS.items():
            if who not in row:
                continue
            ms = row[who].ms
            beyond = None
            if ms is not None and launch is not None and launch.ms is not None and who != "launch":
                beyond = 1e3 * (ms - launch.ms)
            microseconds = _without_time(who, row[who]) if ms is None else f"{1e3 * ms:.1f}"
            rows.append([case, label, microseconds, _number(beyond, 1)])
    return rows


def _figure(suite: Suite, case: Case, who: str, result: Result | None) -> str:
    if result is None:
        return _ABSENT
    if result.rms is not None:
        return f"{result.rms:.2e}"
    if result.ms is None:
        return _without_time(who, result)
    if suite.figure == "TFLOP/s":
        return f"{tflops(case, result.ms):.0f}"
    if suite.figure == "GB/s":
        return f"{gb_s(case, result.ms):.0f}"
    return f"{1e3 * result.ms:.1f}" if suite.figure == "µs" else f"{result.ms:.0f}"


def _without_time(who: str, result: Result) -> str:
    if result.status == "wrong":
        return "WRONG"
    return "not served yet" if (who, result.status) == ("attune", "not served") else result.status


def _number(value: float | None, digits: int) -> str:
    return _ABSENT if value is None else f"{value:.{digits}f}"


def _notes(results: Results) -> list[str]:
    """Why cells have no time: each reason once, each wrong answer by itself."""
    notes: dict[tuple[str, str], list[str]] = {}
    for case, row in results.items():
        for who, result in row.items():
            if result.status == "wrong":
                assert result.error is not None and result.allowed is not None
                off = f"off by {result.error:.3g}" if isfinite(result.error) else "not finite"
                text = f"WRONG: {off} where {result.allowed:.3g} is allowed"
                notes[_label(who), text] = [case]
            elif result.note or result.status == "failed":
                text = _without_time(who, result) if result.ms is None else ""
                text = ": ".join(part for part in (text, result.note) if part)
                notes.setdefault((_label(who), text), []).append(case)
    return [
        f"{who}, {'all cases' if cases == list(results) else '; '.join(cases)}: {text}"
        for (who, text), cases in notes.items()
    ]


def _label(who: str) -> str:
    return _COLUMNS.get(who) or HOST_CALLS[who]


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = _left_columns(rows)
    lines = [
        "  ".join(
            cell.ljust(width) if column < text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _markdown(rows: list[list[str]]) -> str:
    text = _left_columns(rows)
    rule = "|" + "---|" * text + "--:|" * (len(rows[0]) - text)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], rule, *lines[1:]])


def _left_columns(rows: list[list[str]]) -> int:
    return 2 if rows[0][:2] == ["case", "call"] else 1
