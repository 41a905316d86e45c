"""The command line of attune.bench, without a GPU."""

import dataclasses
import importlib.util
import subprocess
import sys

import pytest
from bench_reports import small_report, timed

from attune.bench import cli
from attune.bench.progress import progress
from attune.bench.report import Report
from attune.bench.suites import CONTENDERS, SUITES


def usage_error(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prefil"], "no suite 'prefil'; there are prefill, gqa"),
        (["--peers", "fa2,fa5"], "no peer 'fa5'; there are fa2, cudnn"),
        (["--case", "("], "'(' is no regular expression"),
        (["decode", "--case", "d512"], "--case d512: no case of decode matches"),
        (["--rounds", "0"], "'0' is no number of rounds"),
        (["--plot", "plot.pdf"], "'plot.pdf' must end in .svg or .png"),
        (["--json", "nowhere/report.json"], "there is no folder nowhere for report.json"),
        (["--replay", "nowhere.json"], "nowhere.json"),
        (["--replay", "report.json", "--quick"], "--rounds and --quick do not go with it"),
    ],
)
def test_usage_errors_say_what_is_accepted(capsys, arguments, message):
    assert message in usage_error(capsys, *arguments)


def test_list_names_the_cases_that_match(capsys):
    assert cli.main(["decode", "gqa", "--list", "--case", "L8192"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gqa: prefill with grouped-query heads",
        "  d128 b2 hq32 hk8 L8192 causal",
        "decode: one query token, contiguous keys and values",
        "  d128 b64 hq64 hk8 L8192",
        "  d64 b16 hq32 hk8 L8192",
    ]


def test_replay_shows_a_report_and_its_exit_code_tells_of_wrong_answers(capsys, tmp_path):
    file = tmp_path / "report.json"
    small_report().write(file)
    part = tmp_path / "part.json"
    assert cli.main(["prefill", "--replay", str(file), "--markdown", "--json", str(part)]) == 0
    shown = capsys.readouterr().out
    assert "| d64 b32 h32 L512 full | 100 | 50 | 2.00 | 12 |" in shown
    assert "decode" not in shown
    assert list(Report.read(part).suites) == ["prefill"]
    assert cli.main(["--replay", str(file)]) == 1
    assert "decode, d128 b1 hq32 hk8 L4096: cudnn is wrong" in capsys.readouterr().err
    assert "has no results of gqa" in usage_error(capsys, "gqa", "--replay", str(file))


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["--plot", "plot.svg"]) == 3
    assert "--plot needs matplotlib" in capsys.readouterr().err


def test_progress_is_a_line_for_each_case_where_there_is_no_terminal(capsys):
    with progress("gqa", 2) as tell:
        tell("one")
        tell("two")
    assert capsys.readouterr().err.splitlines() == ["[1/2] gqa: one", "[2/2] gqa: two"]


def test_a_run_that_is_stopped_leaves_what_it_has_measured(monkeypatch, tmp_path):
    def measured(suite, cases, contenders, rounds, tell):
        for case in cases[:2]:
            yield case.name, {"attune": timed(1.0)}
        raise KeyboardInterrupt

    empty = dataclasses.replace(small_report(), suites={})
    monkeypatch.setattr(cli.session, "begin", lambda suites, peers: (empty, ["attune"]))
    monkeypatch.setattr(cli.session, "measured", measured)
    file = tmp_path / "report.json"
    with pytest.raises(KeyboardInterrupt):
        cli.main(["prefill", "--json", str(file)])
    done = Report.read(file).suites["prefill"]
    assert list(done) == [case.name for case in SUITES["prefill"].cases[:2]]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_help_names_every_suite_and_contender():
    done = subprocess.run(
        [sys.executable, "-m", "attune.bench", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in [*SUITES, *CONTENDERS]:
        assert name in done.stdout.lower()


def test_showing_a_report_imports_no_pytorch(tmp_path):
    small_report().write(tmp_path / "report.json")
    code = (
        "import sys; from attune.bench import cli;"
        f"cli.main(['--replay', {str(tmp_path / 'report.json')!r}]); cli.main(['--list']);"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_machine_without_pytorch_or_a_gpu_is_told_so(capsys):
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            pytest.skip("a GPU is here")
    assert cli.main(["prefill", "--case", "L512 full"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("attune.bench: PyTorch ")
