"""attune.bench: the cases of its suites, and their names."""

import pytest

from attune.bench.suites import SUITES, Case, any_suites


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
