"""attune.bench without a GPU: its cases, what gets a time, and what is shown of a report."""

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys

import pytest

from attune.bench import cli, plot, tables
from attune.bench.progress import progress
from attune.bench.report import Ceilings, Report, Result, speedups, summarise
from attune.bench.runner import Verdict, rotations, rounds_for, run_case
from attune.bench.suites import CONTENDERS, SUITES, Case, any_suites

RIGHT = Verdict(error=0.001, allowed=0.002)


def timed(ms, **fields):
    return Result("timed", ms, **fields)


def small_report():
    """Two prefill cases at 100 and 200 TFLOP/s of Attune, one of decoding, one not served."""
    first, second = (SUITES["prefill"].cases[index] for index in (0, 2))
    decode, backward = SUITES["decode"].cases[0], SUITES["backward"].cases[0]
    ms = [case.flop / rate / 1e9 for case, rate in ((first, 100), (second, 200))]
    return Report(
        {"gpu": "NVIDIA H200", "driver": "580.159", "attune": "0.1.0", "date": "2026-11-21 08:00"},
        Ceilings(cublas_tflops=800.0, read_gb_s=4000.0, read_by="Triton"),
        {
            "prefill": {
                first.name: {"attune": timed(ms[0]), "fa2": timed(2 * ms[0])},
                second.name: {"attune": timed(ms[1]), "fa2": timed(ms[1] / 2)},
            },
            "decode": {
                decode.name: {
                    "attune": timed(decode.kv_bytes / 2000e6),  # 2000 GB/s
                    "cudnn": Result("wrong", error=0.5, allowed=0.002),
                }
            },
            "backward": {
                backward.name: {
                    "attune": Result("not served", note="there is no backward yet"),
                    "fa2": timed(1.0, quartiles=(0.9, 1.1), samples=25, error=0.1, allowed=0.2),
                }
            },
        },
    )


# Cases


def test_suites_have_their_cases():
    counts = {name: len(suite.cases) for name, suite in SUITES.items()}
    assert counts == {
        "prefill": 36,
        "gqa": 4,
        "varlen": 36,
        "among": 6,
        "decode": 11,
        "paged": 44,
        "pages": 44,
        "paged_prefill": 90,
        "mixed": 6,
        "splits": 12,
        "lengths": 1,
        "read": 11,
        "masks": 28,
        "tree_decode": 3,
        "backward": 16,
        "backward_varlen": 12,
        "determinism": 38,
        "errors": 60,
        "gradient_errors": 72,
        "jit": 2,
        "host": 1,
        "any_prefill": 60,
        "any_decode": 60,
        "any_pages": 60,
    }
    for suite in SUITES.values():
        assert len({case.name for case in suite.cases}) == len(suite.cases)


def test_prefill_and_backward_have_16k_tokens_and_2048_hidden():
    prefill = [case.name for case in SUITES["prefill"].cases]
    assert prefill[:3] == [
        "d64 b32 h32 L512 full",
        "d64 b32 h32 L512 causal",
        "d64 b16 h32 L1024 full",
    ]
    assert prefill[12] == "d128 b32 h16 L512 full"
    assert prefill[-1] == "d256 b1 h8 L16384 causal"
    backward = [case.name for case in SUITES["backward"].cases]
    assert backward[0] == "d64 b16 h32 L1024 full"
    assert backward[11:13] == ["d128 b1 h16 L16384 causal", "d256 b4 h8 L4096 full"]
    for case in SUITES["prefill"].cases + SUITES["backward"].cases[:12]:
        assert case.batch * case.seqlen_q == 16384
        assert case.heads_q * case.head_dim == case.heads_kv * case.head_dim == 2048


def test_short_sequences_among_long_ones_are_a_part_of_the_name():
    case = Case.parse("varlen", "d128 b2 hq32 hk8 L8192+256x16 causal")
    assert (case.batch, case.seqlen_q, case.causal) == (2, 8192, True)
    assert (case.others, case.other_length) == (256, 16)
    assert case.flop == Case.parse("varlen", "d128 b2 hq32 hk8 L8192 causal").flop


def test_sequences_with_one_query_beside_chunks_are_a_part_of_the_name():
    case = Case.parse("prefill", "d128 b4 hq32 hk8 q2048 L16384+32x8192 causal page64")
    assert (case.batch, case.seqlen_q, case.seqlen_k, case.page_size) == (4, 2048, 16384, 64)
    assert (case.others, case.other_length) == (32, 8192)
    for one in SUITES["mixed"].cases:
        assert one.others and one.page_size and one.other_length % one.page_size == 0


def test_windows_and_ragged_batches_are_a_part_of_the_name():
    case = Case.parse("backward", "d64 b2 h2 L128 causal window40")
    assert (case.operation, case.window, case.variety) == ("backward", 40, "window40")
    assert (case.window_size, case.rule) == ((40, 0), None)
    assert Case.parse("backward", "d64 b2 h2 L128 full window40").window_size == (40, 40)
    case = Case.parse("backward", "d64 b2 h2 L128 causal ragged")
    assert (case.operation, case.window, case.variety) == ("backward_varlen", None, "ragged")
    assert Case.parse("prefill", "d64 b1 h2 L128 window").rule == "window"
    windows = [case for case in SUITES["determinism"].cases if case.window]
    ragged = [case for case in SUITES["determinism"].cases if case.operation == "backward_varlen"]
    for some in (windows, ragged):
        assert {case.head_dim for case in some} == {64, 128, 256}
        assert {case.mask for case in some} == {"full", "causal"}


def test_a_seed_draws_shapes_of_its_own_and_the_same_ones_again():
    names = {seed: [case.name for case in any_suites(seed)["any_decode"].cases] for seed in (0, 1)}
    assert len(set(names[0])) == len(set(names[1])) == 60
    assert len(set(names[0]) & set(names[1])) < 3
    assert names[1] == [case.name for case in any_suites(1)["any_decode"].cases]
    for suite in any_suites(2).values():
        for case in suite.cases:
            assert case.head_dim % 8 == 0 and 32 <= case.head_dim <= 256
            assert case.heads_q % case.heads_kv == 0
            assert case.page_size is None or case.seqlen_k % case.page_size == 0


def test_a_name_says_all_of_a_case():
    case = Case.parse("prefill", "d128 b8 hq32 hk4 L2048 causal")
    assert (case.head_dim, case.batch, case.heads_q, case.heads_kv) == (128, 8, 32, 4)
    assert (case.seqlen_q, case.seqlen_k, case.causal) == (2048, 2048, True)
    decode = Case.parse("decode", "d64 b16 hq32 hk8 L8192")
    assert (decode.seqlen_q, decode.seqlen_k, decode.causal) == (1, 8192, False)
    assert decode.page_size is None
    assert Case.parse("decode", "d64 b16 hq32 hk8 L8192 page64").page_size == 64
    chunk = Case.parse("prefill", "d64 b4 hq32 hk8 q2048 L16384 causal page64")
    assert (chunk.seqlen_q, chunk.seqlen_k, chunk.page_size) == (2048, 16384, 64)
    with pytest.raises(ValueError, match="'d64 L512' names no case"):
        Case.parse("prefill", "d64 L512")


def test_work_is_counted_as_stated():
    full = Case.parse("prefill", "d64 b2 h4 L128 full")
    assert full.flop == 4 * 2 * 4 * 128 * 128 * 64
    assert Case.parse("prefill", "d64 b2 h4 L128 causal").flop == full.flop / 2
    assert Case.parse("backward", "d64 b2 h4 L128 full").flop == full.flop * 2.5
    chunk = Case.parse("prefill", "d64 b2 h4 q2 L4 causal")
    assert chunk.flop == 4 * 2 * 4 * (2 * 4 - 2 * 2 / 2) * 64
    window = Case.parse("prefill", "d64 b2 h4 q3 L4 causal window1")
    assert window.flop == pytest.approx(4 * 2 * 4 * (2 + 2 + 2) * 64)
    window = Case.parse("prefill", "d64 b2 h4 q3 L4 full window1")
    assert window.flop == pytest.approx(4 * 2 * 4 * (3 + 3 + 2) * 64)
    decode = Case.parse("decode", "d64 b16 hq32 hk8 L8192")
    assert decode.kv_bytes == 2 * 2 * 16 * 8 * 8192 * 64


# What gets a time


def run_fakes(answers, samples):
    """Contenders whose calls give `answers`: a Verdict, or an error to raise; a clock with `samples`."""
    clocked = []

    def contender(answer):
        def call():
            if isinstance(answer, Exception):
                raise answer
            return answer

        return lambda: call

    def clock(calls):
        clocked.extend(call() for call in calls)
        return [samples for _ in calls]

    contenders = {name: contender(answer) for name, answer in answers.items()}
    return run_case(contenders, lambda call: call(), clock), clocked


def test_right_answers_are_timed_with_median_and_quartiles():
    results, clocked = run_fakes({"attune": RIGHT, "fa2": RIGHT}, [9.0, 1.0, 2.0, 4.0, 3.0])
    assert list(results) == ["attune", "fa2"]
    assert clocked == [RIGHT, RIGHT]
    assert results["attune"] == timed(
        3.0, quartiles=(2.0, 4.0), samples=5, error=0.001, allowed=0.002
    )


@pytest.mark.parametrize("error", [0.0021, float("inf"), float("nan")])
def test_a_wrong_answer_never_gets_a_time(error):
    wrong = Verdict(error, allowed=0.002)
    results, clocked = run_fakes({"attune": wrong, "fa2": RIGHT}, [1.0])
    assert clocked == [RIGHT]
    assert (results["attune"].status, results["attune"].ms) == ("wrong", None)
    assert results["fa2"].ms == 1.0
    with pytest.raises(ValueError, match="'wrong' has a time"):
        Result("wrong", ms=1.0)


def test_refusals_and_failures_leave_the_others_their_times():
    results, clocked = run_fakes(
        {
            "attune": NotImplementedError("there is no backward yet"),
            "flex": RuntimeError("out of memory\nand a long story"),
            "fa2": RIGHT,
        },
        [1.0],
    )
    assert clocked == [RIGHT]
    assert results["attune"] == Result("not served", note="there is no backward yet")
    assert results["flex"] == Result("failed", note="RuntimeError: out of memory")
    assert results["fa2"].status == "timed"


def test_no_clock_runs_where_nothing_is_right():
    def clock(calls):
        raise AssertionError("nothing to time")

    assert run_case({}, lambda call: RIGHT, clock) == {}


def test_orders_rotate_so_that_each_call_takes_each_place_equally_often():
    orders = list(rotations(3, 6))
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    for place in range(3):
        assert sorted(order[place] for order in orders) == [0, 0, 1, 1, 2, 2]
    assert len({tuple(order) for order in orders}) == 6


def test_short_calls_are_timed_more_often_within_bounds():
    assert rounds_for(20.0) == 30
    assert rounds_for(1000.0) == 11
    assert rounds_for(0.01) == 101


def test_one_sample_is_its_own_median():
    assert summarise([2.5]) == {"ms": 2.5, "samples": 1}


# Reports


def test_a_report_survives_json(tmp_path):
    report = small_report()
    report.suites["decode"]["d128 b1 hq32 hk8 L4096"]["fa2"] = Result(
        "wrong", error=float("inf"), allowed=0.002
    )
    report.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == report
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    first = document["suites"][0]["cases"][0]["results"]["attune"]
    assert first["tflops"] == pytest.approx(100)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 0}'])
def test_what_is_no_report_is_refused_by_name(tmp_path, text):
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="other.json is no report of attune.bench"):
        Report.read(tmp_path / "other.json")


def test_ratios_count_only_cases_that_both_have_a_time_in():
    report = small_report()
    assert speedups(report.suites["prefill"], "fa2") == [2.0, 0.5]
    assert speedups(report.suites["decode"], "cudnn") == []
    assert speedups(report.suites["backward"], "fa2") == []


def test_failures_are_wrong_answers_and_what_attune_failed_in():
    report = small_report()
    assert report.failures() == ["decode, d128 b1 hq32 hk8 L4096: cudnn is wrong"]
    report.suites["decode"]["d128 b1 hq32 hk8 L4096"] = {
        "attune": Result("failed", note="RuntimeError: launch"),
        "flex": Result("failed", note="RuntimeError: no compiler"),
    }
    assert report.failures() == ["decode, d128 b1 hq32 hk8 L4096: attune is failed"]


def test_select_keeps_what_is_asked_for():
    part = small_report().select(["prefill", "decode"], re.compile("L1024|b1 "), ["cudnn"])
    assert {suite: list(results) for suite, results in part.suites.items()} == {
        "prefill": ["d64 b16 h32 L1024 full"],
        "decode": ["d128 b1 hq32 hk8 L4096"],
    }
    assert list(part.suites["prefill"]["d64 b16 h32 L1024 full"]) == ["attune"]
    assert list(part.suites["decode"]["d128 b1 hq32 hk8 L4096"]) == ["attune", "cudnn"]


# Tables


def test_the_heading_names_the_machine_and_its_ceilings():
    assert tables.heading(small_report()).splitlines() == [
        "NVIDIA H200, driver 580.159, Attune 0.1.0, 2026-11-21 08:00",
        "measured ceilings: cuBLAS bf16 8192³ 800 TFLOP/s, streaming read 4000 GB/s (Triton)",
    ]


def test_the_text_table_shows_rates_ratios_and_their_geometric_mean():
    assert tables.suite_text(small_report(), "prefill").splitlines()[2:] == [
        "case                    Attune  FA-2  vs FA-2  % of cuBLAS",
        "d64 b32 h32 L512 full      100    50     2.00           12",
        "d64 b16 h32 L1024 full     200   400     0.50           25",
        "geometric mean                           1.00",
        "lowest                                   0.50",
    ]


def test_the_markdown_table_is_the_same():
    assert tables.suite_text(small_report(), "prefill", markdown=True).splitlines()[2:] == [
        "| case | Attune | FA-2 | vs FA-2 | % of cuBLAS |",
        "|---|--:|--:|--:|--:|",
        "| d64 b32 h32 L512 full | 100 | 50 | 2.00 | 12 |",
        "| d64 b16 h32 L1024 full | 200 | 400 | 0.50 | 25 |",
        "| geometric mean |  |  | 1.00 |  |",
        "| lowest |  |  | 0.50 |  |",
    ]


def test_wrong_answers_are_marked_with_their_error():
    lines = tables.suite_text(small_report(), "decode").splitlines()
    assert lines[2:] == [
        "case                    Attune  cuDNN  GB/s  vs cuDNN  % of read",
        "d128 b1 hq32 hk8 L4096     8.4  WRONG  2000         –         50",
        "",
        "cuDNN, all cases: WRONG: off by 0.5 where 0.002 is allowed",
    ]


def test_what_is_not_served_is_said_and_no_figure_invented():
    lines = tables.suite_text(small_report(), "backward").splitlines()
    assert re.fullmatch(r"d64 b16 h32 L1024 full  not served yet +344 +– +–", lines[3])
    assert lines[-1] == "Attune, all cases: not served yet: there is no backward yet"


def test_host_times_stand_beside_the_launch():
    report = small_report()
    report.suites["host"] = {
        "d64 b1 h4 L16 causal": {
            "attune": timed(0.0081),
            "cudnn": Result("not served"),
            "launch": timed(0.0021),
        }
    }
    assert tables.suite_text(report, "host").splitlines()[2:] == [
        "case                  call                                   µs  beyond the launch",
        "d64 b1 h4 L16 causal  attune.flash_attn_func                8.1                6.0",
        "d64 b1 h4 L16 causal  PyTorch's sdpa, cuDNN          not served                  –",
        "d64 b1 h4 L16 causal  the launch of an empty kernel         2.1                  –",
    ]


# Plots


def test_panels_are_by_head_dim_and_mask_or_of_all_cases():
    report = small_report()
    ((prefill,),) = plot.panels(SUITES["prefill"], report.suites["prefill"], report.ceilings)
    assert prefill.labels == ["512", "1K"]
    assert prefill.bars["attune"] == pytest.approx([100, 200])
    assert (prefill.unit, prefill.ceiling) == ("TFLOP/s", 800.0)
    ((decode,),) = plot.panels(SUITES["decode"], report.suites["decode"], report.ceilings)
    assert decode.labels == ["d128 b1\nhq32 hk8\nL4096"]
    assert decode.bars == {"attune": pytest.approx([2000])}  # what is wrong has no bar
    assert (decode.unit, decode.ceiling) == ("GB/s", 4000.0)
    names = [f"d64 b4 h32 L4096 {rest}" for rest in ("full", "causal", "full window1024")]
    varieties = plot.panels(
        SUITES["determinism"], {name: {"attune": timed(1.0)} for name in names}, None
    )
    assert [[panel.title.split(", ")[-1] for panel in row] for row in varieties] == [
        ["full", "causal"],
        ["full window1024"],
    ]
    name = "d128 b1 hq32 hk8 L4096 page64"
    ((paged,),) = plot.panels(SUITES["paged"], {name: {"attune": timed(1.0)}}, None)
    assert paged.labels == ["d128 b1\nhq32 hk8\nL4096 page64"]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_is_written(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot{suffix}"
    plot.write(small_report(), path)
    start = path.read_bytes()[:400]
    assert (b"<svg" in start) if suffix == ".svg" else start.startswith(b"\x89PNG")
    again = tmp_path / f"again{suffix}"
    plot.write(small_report(), again)
    assert again.read_bytes() == path.read_bytes()


# The command line


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


# The inputs and the reference, on the CPU


def test_pages_hold_the_same_keys_and_values():
    torch = pytest.importorskip("torch")
    from attune.bench.inputs import Inputs

    inputs = Inputs.of(Case.parse("decode", "d64 b3 hq8 hk2 L256 page64"), "cpu")
    pages = inputs.pages
    assert pages.k.shape == (12, 64, 2, 64)
    assert pages.table.dtype == torch.int32
    assert not torch.equal(pages.table.flatten(), torch.arange(12))
    for paged, x in ((pages.k, inputs.k), (pages.v, inputs.v)):
        assert torch.equal(paged[pages.table.long()].flatten(1, 2), x)


def test_decoding_is_timed_through_the_cache(monkeypatch):
    torch = pytest.importorskip("torch")
    import attune
    from attune.bench.contenders import prepare
    from attune.bench.inputs import Inputs

    calls = []
    monkeypatch.setattr(
        attune,
        "flash_attn_with_kvcache",
        lambda *arrays, **options: calls.append((arrays, options)),
    )
    inputs = Inputs.of(Case.parse("decode", "d64 b2 h2 L128"), "cpu")
    prepare("attune", inputs)()
    assert calls.pop() == ((inputs.q, inputs.k, inputs.v), {})
    inputs = Inputs.of(Case.parse("decode", "d64 b2 h2 L128 page64"), "cpu")
    prepare("attune", inputs)()
    (_, k, _), options = calls.pop()
    assert k.shape == (4, 64, 2, 64)
    assert torch.equal(options["block_table"], inputs.pages.table)
    with pytest.raises(NotImplementedError, match="its keys and values are contiguous"):
        prepare("fa2", inputs)


def test_gradients_of_ragged_batches_are_those_of_the_batch(monkeypatch):
    torch = pytest.importorskip("torch")
    import attune
    from attune.bench.contenders import prepare
    from attune.bench.inputs import Inputs

    options = []

    def varlen(q, k, v, starts_q, starts_k, longest_q, longest_k, **named):
        options.append((starts_q.tolist(), starts_k.tolist(), longest_q, longest_k, named))
        return q * 2 + k.sum() * 3 + v.sum() * 5

    monkeypatch.setattr(attune, "flash_attn_varlen_func", varlen)
    inputs = Inputs.of(Case.parse("backward_varlen", "d32 b2 h2 L40 causal"), "cpu")
    dq, dk, dv = prepare("attune", inputs)()
    expected = ([0, 40, 80], [0, 40, 80], 40, 40, {"causal": True, "deterministic": False})
    assert options == [expected]
    assert dq.shape == dk.shape == dv.shape == inputs.q.shape
    assert torch.equal(dq, inputs.dout * 2)


def test_gradients_with_the_same_bits_are_those_of_windows_and_ragged_batches(monkeypatch):
    pytest.importorskip("torch")
    import attune
    from attune.bench.contenders import prepare
    from attune.bench.inputs import Inputs

    called = []

    def recorded(name):
        def call(q, k, v, *_lengths, **named):
            called.append((name, named))
            return q * 1 + k.sum() + v.sum()

        return call

    for name in ("flash_attn_func", "flash_attn_varlen_func"):
        monkeypatch.setattr(attune, name, recorded(name))
    window = Inputs.of(Case.parse("backward", "d32 b2 h2 L40 full window9"), "cpu")
    ragged = Inputs.of(Case.parse("backward", "d32 b2 h2 L40 causal ragged"), "cpu")
    for who, deterministic in (("attune", False), ("attune_same_bits", True)):
        prepare(who, window)()
        prepare(who, ragged)()
        options = {"causal": False, "window_size": (9, 9), "deterministic": deterministic}
        assert called[-2] == ("flash_attn_func", options)
        options = {"causal": True, "deterministic": deterministic}
        assert called[-1] == ("flash_attn_varlen_func", options)
    for inputs in (window, ragged):
        with pytest.raises(NotImplementedError, match="plain cases alone"):
            prepare("fa2", inputs)


def test_a_gradient_of_a_ragged_batch_passes_through_nothing_but_the_call(monkeypatch):
    torch = pytest.importorskip("torch")
    import attune
    from attune.bench import contenders
    from attune.bench.inputs import Inputs

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(q, k, v):
            return torch.empty_like(q)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return gradient, gradient, gradient

    def varlen(q, k, v, *_arguments, **_named):
        return Attention.apply(q, k, v)

    monkeypatch.setattr(attune, "flash_attn_varlen_func", varlen)
    inputs = Inputs.of(Case.parse("backward_varlen", "d32 b2 h2 L40 causal"), "cpu")
    prepared = contenders.prepare("attune", inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gradients = prepared()
    assert [x.data_ptr() for x in gradients] == [inputs.dout.data_ptr()] * 3
    written = {"aten::copy_", "aten::fill_", "aten::zero_", "aten::cat", "aten::add"}
    assert written.isdisjoint(event.name for event in profile.events())


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("prefill", "d64 b2 hq8 hk2 L256 causal"),
        ("decode", "d64 b2 hq8 hk2 L512"),
        ("backward", "d32 b2 h2 L192 causal"),
        ("backward", "d32 b1 hq4 hk2 L192 full"),
        ("prefill", "d32 b1 h2 q90 L192 causal window30"),
        ("backward", "d32 b1 hq4 hk2 L192 causal window30"),
        ("backward", "d32 b1 h2 L192 full window50"),
    ],
)
def test_the_reference_agrees_with_pytorch_in_float64(monkeypatch, operation, name):
    torch = pytest.importorskip("torch")
    from attune.bench import reference
    from attune.bench.inputs import Inputs

    monkeypatch.setattr(reference, "_SCORES", 1 << 15)  # several pieces of each head
    inputs = Inputs.of(Case.parse(operation, name), "cpu")
    q, k, v = (
        x.detach().double().transpose(1, 2).requires_grad_() for x in (inputs.q, inputs.k, inputs.v)
    )
    mask = {"is_causal": inputs.case.causal}
    if inputs.case.window is not None:
        before, behind = inputs.case.window_size
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        shift = k.shape[2] - q.shape[2]
        mask = {"attn_mask": seen.triu(shift - before).tril(shift + behind)}
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, **mask, enable_gqa=True)
    expected = (out,)
    if inputs.dout is not None:
        expected = torch.autograd.grad(out, (q, k, v), inputs.dout.double().transpose(1, 2))
    for dtype, allowed in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
        for x, y in zip(reference.attention(inputs, arithmetic=dtype), expected):
            assert x.dtype == dtype
            torch.testing.assert_close(x.double(), y.transpose(1, 2), rtol=0, atol=allowed)


def test_the_judge_finds_small_late_errors_and_what_was_not_written():
    torch = pytest.importorskip("torch")
    from attune.bench.inputs import Inputs
    from attune.bench.reference import Judge

    inputs = Inputs.of(Case.parse("prefill", "d64 b1 h2 L2048 causal"), "cpu")
    judge = Judge(inputs)
    q, k, v = (x.transpose(1, 2) for x in (inputs.q, inputs.k, inputs.v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    assert judge(lambda: out).right

    late = out.clone()
    late[0, -1, -1, -1] += 0.01
    first_band, last_band = judge.allowed[0][0], judge.allowed[0][-1]
    assert last_band < 0.01 < first_band
    assert not judge(lambda: late).right

    unwritten = out.clone()
    unwritten[0, 7, 0, 3] = float("nan")
    assert not judge(lambda: unwritten).right
    assert not judge.verdict(torch.zeros_like(out)).right
    with pytest.raises(ValueError, match="the answer is"):
        judge(lambda: out[:, 1:])


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("decode", "d64 b16 hq32 hk8 L8192 ragged"),
        ("decode", "d64 b16 hq32 hk8 L8192 window40"),
        ("backward_varlen", "d64 b4 h32 L4096 causal ragged"),
        ("prefill", "d64 b1 h32 L8192 alibi ragged"),
    ],
)
def test_a_variety_that_a_case_cannot_have_is_no_case(operation, name):
    with pytest.raises(ValueError, match="variety"):
        Case.parse(operation, name)
