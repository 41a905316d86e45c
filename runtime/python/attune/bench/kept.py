"""The page of the reports that a folder keeps, so that no figure is written by hand."""

from __future__ import annotations

import statistics
from pathlib import Path

from .report import Report, Result, speedups
from .tables import heading, suite_text

_PREFACE = """\
# Benchmark: kept runs

`python -m attune.bench --kept tests/bench` writes this page from the JSON files beside it; a test keeps it current. No
other page of the project has a speed in it but the README, whose figures a test compares with these.

What enters: a GPU and whichever peers can be imported. What leaves: a report (`--json FILE`), which holds the machine,
its versions and each median. `python -m attune.bench --help` says how a figure is taken; `--replay FILE` shows a kept
report without a GPU. `pip install '.[bench]'` brings what a run needs. Compare figures of one run alone.

![bf16 prefill on an NVIDIA H200: Attune, FlashAttention-3 and cuDNN](prefill_h200.svg)

In a case's name d is head_dim, b the batch, h the heads (hq of queries, hk of keys and values) and L the length. FA-2 is
FlashAttention-2 as PyTorch has it, FA-3 the forward kernels of FlashAttention-3, FA-4 the package flash-attn-4. "vs" is
the peer's time divided by Attune's. `host_cost.cpp` and `start_cost.cpp` measure the host
(`build/default/bin/attune_host_cost`, `attune_start_cost`), `decode_probe.cpp` puts a decode kernel beside itself without
products (`attune_decode_probe`). [`notes.md`](notes.md) keeps what was measured by hand.
"""

#: What the README says: suite, peer, in words.
_HEADLINES = (
    ("prefill", "cudnn", "Prefill beside cuDNN {cudnn}"),
    ("prefill", "fa3", "Prefill beside FlashAttention-3"),
    ("decode", "cudnn", "Decoding beside cuDNN {cudnn}"),
    ("backward", "cudnn", "Gradients beside cuDNN {cudnn}"),
)


def kept_markdown(folder: Path) -> str:
    """The text of the folder's README.md: each report, the newest first.

    Raises OSError, or ValueError where a JSON file is no report.
    """
    sections: list[str] = []
    runs: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    for path, report in _reports(folder):
        when, line = report.machine["date"].split()[0], heading(report).replace("\n", "; ")
        sections.append(f"\n## {path.stem}: {report.machine['gpu']}, {when}\n")
        sections.append(f"[`{path.name}`]({path.name}). {line[0].upper()}{line[1:]}.\n")
        for name in report.suites:
            title, rest = suite_text(report, name, markdown=True).split("\n", 1)
            words = title.removeprefix(f"{name}: ")
            sections.append(f"### {name} in {path.stem}\n\n{words[0].upper()}{words[1:]}\n{rest}\n")
            titles.setdefault(name, words.split("; ")[0])
            runs.setdefault(name, []).append(f"[{path.stem}](#{name}-in-{path.stem})")
    rows = [f"| {name} | {titles[name]} | {', '.join(runs[name])} |" for name in sorted(runs)]
    contents = "\n".join(["| figures | of what | runs, the newest first |", "|---|---|---|", *rows])
    short = ["## In short\n", headlines(folder), f"## Contents\n\n{contents}\n"]
    return "\n".join([_PREFACE, *short, *sections])


def headlines(folder: Path) -> str:
    """A Markdown table of what the reports show, which README.md has too.

    Of each case the newest report speaks, of those with the GPU and versions of the suite's newest.
    """
    lines = ["| bf16 | geometric mean | lowest | measured on |", "|---|--:|--:|---|"]
    reports = [report for _, report in _reports(folder)]
    for suite, peer, words in _HEADLINES:
        having = [one for one in reports if speedups(one.suites.get(suite, {}), peer)]
        if not having:
            continue
        machine = having[0].machine
        newest: dict[str, dict[str, Result]] = {}
        for one in having:
            if all(one.machine[what] == machine[what] for what in ("gpu", "cuda", "cudnn")):
                newest = one.suites[suite] | newest
        found = speedups(newest, peer)
        label = words.format(cudnn=".".join(machine["cudnn"].split(".")[:2]))
        mean, when = statistics.geometric_mean(found), machine["date"].split()[0]
        where = f"{machine['gpu']}, CUDA {machine['cuda']}, {when}"
        lines.append(
            f"| {label}, {len(found)} cases | {mean:.2f} times as fast | {min(found):.2f} | {where} |"
        )
    return "\n".join(lines) + "\n"


def _reports(folder: Path) -> list[tuple[Path, Report]]:
    """The newest first."""
    reports = [(path, Report.read(path)) for path in sorted(folder.glob("*.json"))]
    return sorted(reports, key=lambda one: one[1].machine["date"], reverse=True)
