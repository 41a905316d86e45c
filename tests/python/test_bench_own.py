"""The suites of attune.bench that put Attune beside other calls of its own, on the CPU."""

import pytest

import attune
from attune.bench import tables
from attune.bench.report import Ceilings, Report, Result
from attune.bench.suites import OWN_CALLS, SUITES, Case

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from torch_device import emulated

from attune.bench import lengths, reading
from attune.bench.contenders import prepare
from attune.bench.inputs import Inputs
from attune.bench.reference import Judge


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """attune's functions take CPU tensors, by way of NumPy."""

    for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"):
        monkeypatch.setattr(attune, name, emulated(getattr(attune, name)))


def one_clock(calls):
    return [[1.0 + place] for place, call in enumerate(calls) if call() is not None]


@pytest.mark.parametrize(
    ("operation", "name", "beside"),
    [
        ("varlen", "d64 b3 hq4 hk2 L70 causal", "attune_dense"),
        ("varlen", "d64 b2 h2 L65 full", "attune_dense"),
        ("varlen", "d64 b1 hq4 hk2 L150+40x3 causal", "attune_alone"),
        ("decode", "d128 b1 hq8 hk2 L512", "attune_one_split"),
        ("decode", "d64 b2 hq4 hk2 L40 page1", "attune_contiguous"),
        ("prefill", "d64 b2 hq4 hk2 q20 L64 causal page16", "attune_contiguous"),
        ("prefill", "d64 b2 hq4 hk2 q20 L40 full page1", "attune_contiguous"),
        ("prefill", "d64 b1 hq4 hk2 q50 L90 causal window20", "attune_dense"),
        ("prefill", "d64 b2 h2 L70 full window20", "attune_dense"),
    ],
)
def test_both_calls_are_judged_right(operation, name, beside):
    inputs = Inputs.of(Case.parse(operation, name), "cpu")
    judge = Judge(inputs)
    for who in ("attune", beside):
        assert judge(prepare(who, inputs)).right


def test_unequal_lengths_are_log_uniform_and_always_the_same():
    (case,) = SUITES["lengths"].cases
    assert case.lengths == Case.parse("decode", case.name).lengths
    assert (len(case.lengths), case.shortest, case.seqlen_k) == (64, 128, 65536)
    assert 128 <= min(case.lengths) < 256
    assert 32768 < max(case.lengths) <= 65536
    below = sum(length < 2896 for length in case.lengths)  # the geometric mean of the bounds
    assert 20 <= below <= 44
    assert sum(case.even_lengths) == sum(case.lengths)
    assert max(case.even_lengths) - min(case.even_lengths) <= 1
    assert case.kv_bytes == 2 * 2 * 8 * 128 * sum(case.lengths)


def test_unequal_lengths_are_judged_sequence_by_sequence():
    case = Case.parse("decode", "d64 b4 hq4 hk2 L3-200 page8")
    results = lengths.measure(case, one_clock, "cpu")
    assert [(who, one.status, one.ms) for who, one in results.items()] == [
        ("attune", "timed", 1.0),
        ("attune_even", "timed", 2.0),
    ]


def test_an_error_in_one_sequence_is_found(monkeypatch):
    right = attune.flash_attn_with_kvcache

    def wrong(*arrays, **options):
        out = right(*arrays, **options)
        out[2, 0, 1, 3] += 0.5
        return out

    monkeypatch.setattr(attune, "flash_attn_with_kvcache", wrong)
    case = Case.parse("decode", "d64 b4 hq4 hk2 L3-200 page8")
    results = lengths.measure(case, one_clock, "cpu")
    assert [one.status for one in results.values()] == ["wrong", "wrong"]


def test_the_fastest_read_of_as_many_bytes_stands_beside_decoding():
    case = Case.parse("decode", "d64 b2 hq4 hk2 L40")
    read = []

    def readers(memory):
        read.append(memory.nbytes)
        return [lambda: memory[1:], lambda: memory.clone(), lambda: memory]

    results = reading.measure(case, one_clock, "cpu", readers)
    assert [(who, one.status, one.ms) for who, one in results.items()] == [
        ("attune", "timed", 1.0),
        ("read", "timed", 2.0),  # the first one left out an element, and has no time
    ]
    assert read == [case.kv_bytes]


def test_tables_show_both_and_their_ratio():
    def timed(ms):
        return Result("timed", ms)

    (uneven,) = SUITES["lengths"].cases
    split, ragged = SUITES["splits"].cases[0], SUITES["varlen"].cases[0]
    at = uneven.kv_bytes / 1e6
    report = Report(
        {},
        Ceilings(cublas_tflops=800.0, read_gb_s=4000.0, read_by="Triton"),
        {
            "lengths": {uneven.name: {"attune": timed(at / 2000), "attune_even": timed(at / 3000)}},
            "splits": {split.name: {"attune": timed(0.01), "attune_one_split": timed(0.08)}},
            "varlen": {
                ragged.name: {
                    "attune": timed(ragged.flop / 400e9),
                    "attune_dense": timed(ragged.flop / 500e9),
                }
            },
        },
    )
    rows = tables.suite_text(report, "lengths").splitlines()[2:4]
    assert rows == [
        "case                                 Attune  even lengths  vs even lengths  % of read",
        "d128 b64 hq32 hk8 L128-65536 page64    2000          3000             0.67         50",
    ]
    assert tables.suite_text(report, "splits").splitlines()[2:4] == [
        "case                     Attune  one split  GB/s  vs one split  % of read",
        "d128 b1 hq32 hk32 L4096    10.0       80.0  6711          8.00        168",
    ]
    assert tables.suite_text(report, "varlen").splitlines()[3].split()[-4:] == [
        *("400", "500", "0.80", "50")
    ]


def test_every_call_of_its_own_is_named_by_a_suite():
    assert set(OWN_CALLS) == {suite.beside for suite in SUITES.values() if suite.beside}
