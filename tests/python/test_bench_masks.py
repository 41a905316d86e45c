"""The suites of attune.bench that put expressions beside kernels without them, on the CPU."""

import pytest

import attune
from attune.bench.suites import SUITES, Case

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from torch_device import emulated

from attune.bench import masks
from attune.bench.contenders import prepare
from attune.bench.inputs import Inputs
from attune.bench.reference import Judge


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """attune's functions take CPU tensors, by way of NumPy."""

    for name in (
        "flash_attn_func",
        "flash_attn_varlen_func",
        "flash_attn_with_kvcache",
        "attention",
    ):
        monkeypatch.setattr(attune, name, emulated(getattr(attune, name)))


@pytest.mark.parametrize("rule", masks.RULES)
def test_what_computes_a_rule_is_judged_right_and_what_does_not_is_not(rule):
    if rule == "tree":
        case = Case.parse("decode", "d64 b2 hq4 hk2 L96 page16 tree8")
    else:
        case = Case.parse("prefill", f"d64 b2 h2 L160 {rule}")
    inputs = Inputs.of(case, "cpu")
    judge = Judge(inputs)
    assert judge(prepare("attune", inputs)).right
    plain = judge(prepare("attune_plain", inputs))
    assert plain.right == masks.RULES[rule].same


def test_documents_have_512_to_8192_tokens_of_32768():
    lengths = masks.document_lengths(32768)
    assert sum(lengths) == 32768
    assert all(512 <= one <= 8192 for one in lengths[:-1])
    assert lengths == masks.document_lengths(32768)


def test_a_token_of_a_tree_sees_itself_and_its_parents():
    (case, *_) = SUITES["tree_decode"].cases
    (tree,) = masks.tree_of(case)
    assert case.seqlen_q == 16
    assert (tree.diagonal() == 1).all() and (tree.triu(1) == 0).all()
    assert (tree[:, 0] == 1).all()  # the root
    assert (tree @ tree > 0).int().equal(tree)  # parents' parents are seen, too
    assert not tree.equal(torch.ones_like(tree).tril())
