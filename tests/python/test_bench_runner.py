"""attune.bench without a GPU: what gets a time, the inputs, and the reference."""

import pytest
from bench_reports import timed

from attune.bench.report import Result, summarise
from attune.bench.runner import Verdict, rotations, rounds_for, run_case
from attune.bench.suites import Case

RIGHT = Verdict(error=0.001, allowed=0.002)


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
