"""attune.bench: what is kept and shown of a run."""

import json
import re

import pytest
from bench_reports import small_report, timed

from attune.bench import plot, tables
from attune.bench.report import Report, Result, speedups
from attune.bench.suites import SUITES


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
