"""The command line of `python -m attune.bench`."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from . import kept, plot, session, tables
from .progress import progress
from .report import Report
from .suites import CONTENDERS, PEERS, SUITES, Suite, any_suites

_EPILOG = """\
Suites, with the number of their cases:
{suites}

The suites varlen, among, backward_varlen, pages, any_pages, paged_prefill, mixed, splits, lengths
and tree_decode put Attune beside other calls of its own instead of peers, read beside a plain read of
as many bytes, and masks beside calls of its own and FlexAttention: a ragged batch for documents,
the window alone for windows with first tokens, the kernel's own soft cap, and else the causal mask.
The suites errors and gradient_errors take no times: they show the root mean square of how far
answers are from attention in float64 of the same inputs, and Attune's divided by each peer's;
outliers are one element in a thousand, ten times as far spread.

Peers, timed where they can be imported:
{peers}

Every contender gets the same bf16 tensors, and is called as its users call it. Each answer is first
compared with float32 attention, all of it: at most twice the error of the naive bf16 formula, three
times for gradients, or it is marked WRONG and gets no time. Times are medians by CUDA events,
interleaved, with the L2 flushed before each call. TFLOP/s counts 4 B H Lq Lk D, halved when causal,
times 2.5 backward; GB/s counts keys and values once. Compare within one run: a card's clocks follow
its temperature.

Exit codes: 0 done; 1 an answer was wrong, or Attune failed; 2 bad usage; 3 the machine lacks a GPU
or a package.

Examples:
  python -m attune.bench prefill --peers fa2,cudnn --json prefill.json --plot prefill.svg
  python -m attune.bench decode --case 'b1 .* L32768' --rounds 50
  python -m attune.bench prefill --replay all.json --peers fa2 --markdown
"""


def _parser() -> argparse.ArgumentParser:
    suites = "\n".join(
        f"  {one.name:<16}{len(one.cases):>3}  {one.about}" for one in SUITES.values()
    )
    about_peers = {
        "fa2": "PyTorch's scaled_dot_product_attention, FlashAttention-2 backend",
        "cudnn": "PyTorch's scaled_dot_product_attention, cuDNN backend",
        "flex": "PyTorch's FlexAttention, compiled",
        "flash_attn": "the package flash_attn",
        "fa3": "FlashAttention-3, the package flash_attn_interface",
        "fa4": "FlashAttention-4, the package flash-attn-4",
        "flashinfer": "the package flashinfer",
    }
    peers = "\n".join(f"  {name:<12}{about_peers[name]}" for name in PEERS)
    parser = argparse.ArgumentParser(
        prog="python -m attune.bench",
        description="Times Attune and its peers side by side on this machine's GPU.",
        epilog=_EPILOG.format(suites=suites, peers=peers),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suites", nargs="*", type=_suite, metavar="SUITE", help="what to measure [default: all]"
    )
    parser.add_argument(
        "--case",
        type=_pattern,
        default="",
        metavar="REGEX",
        help="only cases whose name has a match",
    )
    parser.add_argument(
        "--peers",
        type=_peers,
        metavar="NAME,...",
        help="only these peers; '' is none [default: all that are found]",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        metavar="N",
        help="how often to time each call [default: 11 to 101, by its length]",
    )
    parser.add_argument(
        "--quick",
        dest="rounds",
        action="store_const",
        const=5,
        help="a first look: --rounds 5",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="what the shapes of the suites any_* are drawn from [default: 0]",
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write the report")
    parser.add_argument(
        "--plot", type=_picture, metavar="FILE", help="draw the report, as .svg or .png"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables as Markdown, for a README"
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="show the report of an earlier --json; needs no GPU",
    )
    parser.add_argument(
        "--kept",
        type=_folder,
        metavar="FOLDER",
        help="write FOLDER/README.md of the reports that are kept there, and stop; needs no GPU",
    )
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    return parser


def _suite(text: str) -> str:
    if text not in SUITES:
        raise argparse.ArgumentTypeError(f"no suite '{text}'; there are {', '.join(SUITES)}")
    return text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


def _peers(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"no peer '{name}'; there are {', '.join(PEERS)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of rounds; 1 or more is accepted")
    return int(text)


def _file(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} for {path.name}")
    return path


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path


def _picture(text: str) -> Path:
    path = _file(text)
    if path.suffix not in (".svg", ".png"):
        raise argparse.ArgumentTypeError(f"'{text}' must end in .svg or .png")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code, and raises SystemExit(2) where the usage is bad."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.kept:
        try:
            text = kept.kept_markdown(options.kept)
        except ValueError as error:
            parser.error(str(error))
        (options.kept / "README.md").write_text(text, encoding="utf-8")
        return 0
    known = SUITES | any_suites(options.seed)
    suites = [name for name in known if name in options.suites or not options.suites]
    chosen = {name: session.matching(known[name], options.case) for name in suites}
    chosen = {name: cases for name, cases in chosen.items() if cases}
    if not chosen:
        parser.error(f"--case {options.case.pattern}: no case of {', '.join(suites)} matches")
    if options.replay and options.rounds:
        parser.error("--replay measures nothing; --rounds and --quick do not go with it")
    if options.plot and not plot.drawn(chosen):
        parser.error(f"--plot draws nothing of {', '.join(chosen)}")
    if options.list:
        for name, cases in chosen.items():
            print(f"{name}: {known[name].about}")
            print("".join(f"  {case.name}\n" for case in cases), end="")
        return 0
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        return _lacks("--plot needs matplotlib: pip install 'attune-kernels[bench]'")
    try:
        if options.replay:
            report = Report.read(options.replay).select(chosen, options.case, options.peers)
            if not report.suites:
                raise ValueError(f"{options.replay} has no results of {', '.join(chosen)}")
            if options.plot and not plot.drawn(report.suites):
                raise ValueError(f"--plot draws nothing of {', '.join(report.suites)}")
            print(tables.heading(report))
            for name in report.suites:
                _show(report, name, options.markdown)
            if options.json:
                report.write(options.json)
        else:
            report = _run(options, [known[name] for name in chosen])
    except session.Unavailable as lack:
        return _lacks(str(lack))
    except (OSError, ValueError) as error:
        if not options.replay:
            raise
        parser.error(str(error))
    if options.plot:
        plot.write(report, options.plot)
    failures = report.failures()
    for failure in failures:
        print(f"attune.bench: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _run(options: argparse.Namespace, suites: Sequence[Suite]) -> Report:
    report, contenders = session.begin([suite.name for suite in suites], options.peers)
    print(tables.heading(report))
    absent = [CONTENDERS[who] for who in PEERS if who not in contenders]
    if absent and options.peers is None:
        print(f"not importable here: {', '.join(absent)}")
    for suite in suites:
        cases = session.matching(suite, options.case)
        results = report.suites[suite.name] = {}
        with progress(suite.name, len(cases)) as tell:
            for case, result in session.measured(suite, cases, contenders, options.rounds, tell):
                results[case] = result
                if options.json:  # of what there is, should a later case not come to its end
                    report.write(options.json)
        _show(report, suite.name, options.markdown)
    return report


def _show(report: Report, name: str, markdown: bool) -> None:
    print(f"\n{tables.suite_text(report, name, markdown)}", flush=True)


def _lacks(message: str) -> int:
    print(f"attune.bench: {message}", file=sys.stderr)
    return 3
