"""The suite errors of attune.bench: its cases, what it measures, and what is shown of it."""

import importlib.util
import re

import pytest

import attune
from attune.bench import cli, plot, tables
from attune.bench.report import Report, Result, error_ratio, error_ratios
from attune.bench.suites import SUITES, Case

PLAIN = "d128 b8 h16 L2048 causal"
OUTLIERS = "d128 b8 h16 L2048 causal outliers"


def right(rms):
    return Result("right", error=0.001, allowed=0.002, rms=rms)


def small_report():
    """Attune as exact as FA-2, then less; cuDNN less exact, then not served."""
    return Report(
        {"gpu": "NVIDIA H200"},
        None,
        {
            "errors": {
                PLAIN: {"attune": right(1e-4), "fa2": right(1e-4), "cudnn": right(1.25e-4)},
                OUTLIERS: {
                    "attune": right(2.0456e-3),
                    "fa2": right(2e-3),
                    "cudnn": Result("not served", note="the backend refuses the shape"),
                },
            }
        },
    )


# Cases


def test_outliers_are_said_by_a_name():
    case = Case.parse("prefill", OUTLIERS)
    assert (case.name, case.outliers, case.causal) == (OUTLIERS, True, True)
    assert (case.head_dim, case.batch, case.heads_q, case.seqlen_q) == (128, 8, 16, 2048)
    assert not Case.parse("prefill", PLAIN).outliers
    with pytest.raises(ValueError, match="names no case"):
        Case.parse("prefill", "d128 b8 h16 L2048 outliers causal")


def test_each_case_is_there_with_normal_inputs_and_with_outliers():
    cases = SUITES["errors"].cases
    plain = [case.name for case in cases if not case.outliers]
    assert [case.name for case in cases] == plain + [f"{name} outliers" for name in plain]
    assert {(case.head_dim, case.seqlen_k, case.mask) for case in cases} == {
        (head_dim, length, mask)
        for head_dim in (64, 96, 128, 192, 256)
        for length in (512, 2048, 8192)
        for mask in ("full", "causal")
    }
    for case in cases:
        assert case.batch * case.seqlen_q == 16384
        assert 2048 - case.head_dim < case.heads_q * case.head_dim <= 2048


def test_gradients_have_a_case_each():
    names = [case.name for case in SUITES["gradient_errors"].cases]
    assert names[:3] == [f"d64 b32 h32 L512 full {x}" for x in ("dq", "dk", "dv")]
    assert names[-1] == "d256 b4 h8 L4096 causal outliers dv"
    assert all(case.has_gradients for case in SUITES["gradient_errors"].cases)


def test_errors_need_no_ceilings():
    assert not SUITES["errors"].on_gpu


# Reports


def test_only_a_right_answer_has_an_error_against_float64():
    with pytest.raises(ValueError, match="'right' has an RMS error of None"):
        Result("right")
    with pytest.raises(ValueError, match="'wrong' has an RMS error of 0.5"):
        Result("wrong", error=1.0, allowed=0.5, rms=0.5)
    with pytest.raises(ValueError, match="'right' has a time"):
        Result("right", ms=1.0, rms=0.5)


def test_errors_survive_json(tmp_path):
    report = small_report()
    report.suites["errors"][PLAIN]["flex"] = Result("wrong", error=float("nan"), allowed=0.002)
    report.write(tmp_path / "report.json")
    read = Report.read(tmp_path / "report.json")
    wrong = read.suites["errors"][PLAIN].pop("flex")
    assert (wrong.status, str(wrong.error), wrong.rms) == ("wrong", "nan", None)
    del report.suites["errors"][PLAIN]["flex"]
    assert read == report
    assert read.failures() == []


def test_ratios_are_attunes_error_divided_by_the_peers():
    results = small_report().suites["errors"]
    assert error_ratio(results[PLAIN], "cudnn") == pytest.approx(0.8)
    assert error_ratio(results[OUTLIERS], "cudnn") is None
    assert error_ratio(results[OUTLIERS], "flex") is None
    assert error_ratios(results, "fa2") == [1.0, pytest.approx(1.0228)]
    assert error_ratios(results, "cudnn") == [pytest.approx(0.8)]


# What is shown


def test_the_table_shows_errors_ratios_their_mean_and_the_largest():
    title, _, *lines = tables.suite_text(small_report(), "errors").splitlines()
    assert title == (
        "errors: how far answers are from float64, with normal inputs and with outliers, "
        "bf16, root mean square errors; "
        "'vs' is Attune's divided by the peer's, at most 1 where it is as exact"
    )
    assert lines == [
        "case                                 Attune      FA-2       cuDNN  vs FA-2  vs cuDNN",
        "d128 b8 h16 L2048 causal           1.00e-04  1.00e-04    1.25e-04   1.0000    0.8000",
        "d128 b8 h16 L2048 causal outliers  2.05e-03  2.00e-03  not served   1.0228         –",
        "geometric mean                                                      1.0113    0.8000",
        "largest                                                             1.0228    0.8000",
        "",
        "cuDNN, d128 b8 h16 L2048 causal outliers: not served: the backend refuses the shape",
    ]


def test_the_markdown_table_is_the_same():
    table = tables.suite_text(small_report(), "errors", markdown=True).split("\n\n")[1]
    assert table.splitlines()[2:] == [
        "| d128 b8 h16 L2048 causal | 1.00e-04 | 1.00e-04 | 1.25e-04 | 1.0000 | 0.8000 |",
        "| d128 b8 h16 L2048 causal outliers | 2.05e-03 | 2.00e-03 | not served | 1.0228 | – |",
        "| geometric mean |  |  |  | 1.0113 | 0.8000 |",
        "| largest |  |  |  | 1.0228 | 0.8000 |",
    ]


def test_a_wrong_answer_shows_no_error_against_float64_and_has_no_ratio():
    report = small_report()
    report.suites["errors"][PLAIN]["attune"] = Result("wrong", error=0.5, allowed=0.002)
    lines = tables.suite_text(report, "errors").splitlines()
    assert re.fullmatch(r"d128 b8 h16 L2048 causal +WRONG +1.00e-04 +1.25e-04 +– +–", lines[3])
    assert f"Attune, {PLAIN}: WRONG: off by 0.5 where 0.002 is allowed" in lines
    assert report.failures() == [f"errors, {PLAIN}: attune is wrong"]


def test_replay_shows_the_cases_and_peers_that_are_asked_for(capsys, tmp_path):
    file = tmp_path / "errors.json"
    small_report().write(file)
    assert cli.main(["--replay", str(file), "--case", "outliers", "--peers", "fa2"]) == 0
    table = capsys.readouterr().out.split("\n\n")[2]
    assert table.splitlines()[:2] == [
        "case                                 Attune      FA-2  vs FA-2",
        "d128 b8 h16 L2048 causal outliers  2.05e-03  2.00e-03   1.0228",
    ]


def test_plots_leave_errors_out_and_say_so_before_anything_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)  # matplotlib is here
    assert plot.drawn(["errors", "prefill", "host", "jit"]) == ["prefill", "jit"]
    with pytest.raises(ValueError, match="nothing is drawn of errors"):
        plot.write(small_report(), tmp_path / "plot.svg")
    file = tmp_path / "errors.json"
    small_report().write(file)
    for arguments in (["errors", "host"], ["--replay", str(file)]):
        with pytest.raises(SystemExit) as stopped:
            cli.main([*arguments, "--plot", str(tmp_path / "plot.svg")])
        assert stopped.value.code == 2
        assert "--plot draws nothing of errors" in capsys.readouterr().err


# What is measured, on the CPU


def test_one_element_in_a_thousand_is_an_outlier():
    torch = pytest.importorskip("torch")
    from attune.bench.inputs import Inputs

    plain, outlying = (
        Inputs.of(Case.parse("prefill", f"d64 b2 h8 L1024 full{end}"), "cpu")
        for end in ("", " outliers")
    )
    places = []
    for x, y in ((plain.q, outlying.q), (plain.k, outlying.k), (plain.v, outlying.v)):
        assert y.dtype == torch.bfloat16
        added = (y.double() - x.double())[x != y]
        assert 0.0008 < added.numel() / x.numel() < 0.0012  # 1049 of a million, give or take 32
        assert 9 < added.std() < 11
        places.append(x != y)
    assert not torch.equal(places[0], places[1])


def test_the_root_mean_square_is_over_all_of_the_answer():
    torch = pytest.importorskip("torch")
    from attune.bench.errors import rms

    exact = torch.randn(2, 8, 4, 16, dtype=torch.float64)
    assert rms(exact + 1e-9, exact) == pytest.approx(1e-9)
    one = exact.clone()
    one[1, 7, 3, 15] += 0.5
    assert rms(one, exact) == pytest.approx(0.5 / 1024**0.5)
    answer = exact.bfloat16()
    pairs = zip(answer.flatten().tolist(), exact.flatten().tolist())
    expected = (sum((x - y) ** 2 for x, y in pairs) / 1024) ** 0.5
    assert rms(answer, exact) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["d32 b2 h3 L70 causal", "d64 b1 h2 L65 full outliers"])
def test_right_answers_are_measured_against_float64_and_others_are_not(monkeypatch, name):
    torch = pytest.importorskip("torch")
    from attune.bench import errors
    from attune.bench.inputs import Inputs

    case = Case.parse("prefill", name)
    inputs = Inputs.of(case, "cpu")
    q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / case.head_dim**0.5
    if case.causal:
        scores += torch.full(scores.shape[2:], float("-inf"), dtype=torch.float64).triu(1)
    exact = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
    calls = {"attune": exact.bfloat16(), "fa2": exact + 1e-7, "flex": exact + 10}

    def prepare(who, inputs):
        if who == "cudnn":
            raise NotImplementedError("the backend refuses the shape")
        return lambda: calls.pop(who)  # a second call would fail

    monkeypatch.setattr(errors, "prepare", prepare)
    results = errors.ErrorMeter("cpu").measure(case, ["attune", "fa2", "cudnn", "flex"])
    statuses = {who: result.status for who, result in results.items()}
    assert statuses == {"attune": "right", "fa2": "right", "cudnn": "not served", "flex": "wrong"}
    rounding = float((exact.bfloat16() - exact).square().mean().sqrt())
    assert results["attune"].rms == pytest.approx(rounding, rel=1e-9)
    assert results["fa2"].rms == pytest.approx(1e-7, rel=1e-6)
    assert 0 < results["attune"].error <= results["attune"].allowed
    assert (results["attune"].ms, results["flex"].rms) == (None, None)


@pytest.mark.parametrize("gradient", ["dq", "dk", "dv"])
def test_each_gradient_is_measured_by_itself(monkeypatch, gradient):
    torch = pytest.importorskip("torch")
    from attune.bench import errors
    from attune.bench.inputs import Inputs
    from attune.bench.reference import attention

    case = Case.parse("backward", f"d32 b2 h3 L70 causal outliers {gradient}")
    exact = attention(Inputs.of(case, "cpu"), arithmetic=torch.float64)
    off = [x + 10 ** -(7 + place) for place, x in enumerate(exact)]
    wrong = [exact[0], exact[1], exact[2] + 10]  # of which one is right or two are
    calls = {"attune": off, "fa2": wrong}
    monkeypatch.setattr(errors, "prepare", lambda who, inputs: lambda: tuple(calls[who]))
    results = errors.ErrorMeter("cpu").measure(case, ["attune", "fa2"])
    place = ("dq", "dk", "dv").index(gradient)
    assert results["attune"].rms == pytest.approx(10 ** -(7 + place), rel=1e-4)
    assert results["fa2"].status == "wrong"


def test_gradients_of_the_same_inputs_share_an_answer_and_others_do_not(monkeypatch):
    pytest.importorskip("torch")
    from attune.bench import errors
    from attune.bench.reference import attention

    prepared = []

    def prepare(who, inputs):
        prepared.append(inputs.case.name)
        return lambda: attention(inputs)

    monkeypatch.setattr(errors, "prepare", prepare)
    meter = errors.ErrorMeter("cpu")
    names = ["d32 b1 h1 L70 full dq", "d32 b1 h1 L70 full dk", "d32 b1 h1 L70 causal dk"]
    for name in names:
        results = meter.measure(Case.parse("backward", name), ["attune"])
        assert results["attune"].status == "right"
    assert prepared == [names[0], names[2]]


def test_attune_and_pytorch_are_nearly_as_exact(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    from torch_device import emulated

    from attune.bench import errors

    monkeypatch.setattr(attune, "flash_attn_func", emulated(attune.flash_attn_func))
    case = Case.parse("prefill", "d64 b1 h2 L130 causal outliers")
    results = errors.ErrorMeter("cpu").measure(case, ["attune", "fa2"])
    assert [result.status for result in results.values()] == ["right", "right"]
    ratio = error_ratio(results, "fa2")
    assert ratio is not None and 0.8 < ratio < 1.25
