"""attune.torch.attention and alibi_slopes as operators, compiled too. Skipped, by name, without PyTorch.

Without a GPU the kernels run in the emulator, behind the same operators.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from test_alibi import check as check_slopes
from test_sinks import SINKS
from test_sinks import check as check_sinks
from test_sinks import expected as with_sinks
from test_expressions import (
    EVERYWHERE,
    LENGTHS_K,
    PARAMS,
    check,
    drawn,
    each_expression,
    expected_of,
    in_pages,
    starts_of,
)

pytest_plugins = "torch_device"
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


def tensors(device, *arrays):
    return [torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in arrays]


def of_arrays(device, **arrays):
    return dict(zip(arrays, tensors(device, *arrays.values())))


def numpy(*results):
    return [one.cpu().numpy() for one in results]


def arguments(which, device):
    score, mask = EVERYWHERE[which]
    return {
        "score": score,
        "mask": mask,
        "params": of_arrays(device, **PARAMS),
        "return_lse": True,
    }


def dense(device):
    sequences = drawn((20,) * 3, (50,) * 3)
    return sequences, tensors(device, *(np.stack(one) for one in zip(*sequences)))


@each_expression
def test_a_dense_batch_compiled_and_not(which, torch_device, backend):
    sequences, qkv = dense(torch_device)
    named = arguments(which, torch_device)

    def attend(q, k, v):
        return library.attention(q, k, v, **named)

    out, lse = attend(*qkv)
    for b, expected in enumerate(expected_of(sequences, which)):
        check(numpy(out[b], lse[b]), expected)
    compiled = torch.compile(attend, backend=backend, fullgraph=True)
    assert all(torch.equal(one, other) for one, other in zip(compiled(*qkv), (out, lse)))


@each_expression
def test_a_ragged_batch_in_pages(which, torch_device):
    lengths = (20, 1, 40)
    sequences = drawn(lengths, LENGTHS_K)
    k, v, table = in_pages(sequences, 16, 4)
    q = np.concatenate([one[0] for one in sequences])
    named = of_arrays(
        torch_device,
        cu_seqlens_q=starts_of(lengths),
        seqused_k=np.array(LENGTHS_K, "int32"),
        block_table=table,
    )
    found = library.attention(
        *tensors(torch_device, q, k, v),
        max_seqlen_q=40,
        max_seqlen_k=64,
        **named,
        **arguments(which, torch_device),
    )
    out, lse = numpy(*found)
    for b, expected in enumerate(expected_of(sequences, which)):
        rows = slice(*starts_of(lengths)[b : b + 2])
        check((out[rows], lse[:, rows]), expected)


@each_expression
def test_keys_are_appended_to_a_cache_in_a_compiled_call(which, torch_device, backend):
    sequences = drawn((4,) * 3, LENGTHS_K)
    k, v, table = in_pages([(q, k[:-4], v[:-4]) for q, k, v in sequences], 16, 4)
    q, k_new, v_new = (
        np.stack(one) for one in zip(*((q, k[-4:], v[-4:]) for q, k, v in sequences))
    )
    named = of_arrays(
        torch_device,
        k_new=k_new,
        v_new=v_new,
        cache_seqlens=np.array(LENGTHS_K, "int32") - 4,
        block_table=table,
    )
    q, k, v = tensors(torch_device, q, k, v)
    expressions = arguments(which, torch_device)
    compiled = torch.compile(library.attention, backend=backend, fullgraph=True)
    out, lse = numpy(*compiled(q, k, v, **named, **expressions))
    for b, expected in enumerate(expected_of(sequences, which)):
        check((out[b], lse[b]), expected)
        place = table[b, (LENGTHS_K[b] - 1) // 16], (LENGTHS_K[b] - 1) % 16
        np.testing.assert_array_equal(k[place].cpu().numpy(), sequences[b][1][-1])


def test_a_text_stands_anywhere_in_what_is_compiled(torch_device, backend):
    _, qkv = dense(torch_device)

    @torch.compile(backend=backend, fullgraph=True, dynamic=True)
    def attend(q, k, v, bias):
        return library.attention(q, k, v, score="s + bias[h, k % 5]", params={"bias": bias})

    (bias,) = tensors(torch_device, np.random.default_rng(1).random((4, 5)).astype("float32"))
    named = {"score": lambda s, bias, h, k: s + bias[h, k % 5], "params": {"bias": bias}}
    assert torch.equal(attend(*qkv, bias), library.attention(*qkv, **named))
    shorter = [one[:, :10].clone() for one in qkv]
    assert torch.equal(attend(*shorter, bias), library.attention(*shorter, **named))


def test_slopes_in_every_function(torch_device, backend):
    sequences, (q, k, v) = dense(torch_device)
    (slopes,) = tensors(torch_device, PARAMS["slope"])
    named = {"alibi_slopes": slopes, "causal": True, "return_attn_probs": True}

    def attend(q, k, v):
        return library.flash_attn_func(q, k, v, **named)

    out, lse, _ = attend(q, k, v)
    assert torch.equal(torch.compile(attend, backend=backend, fullgraph=True)(q, k, v)[0], out)
    starts = torch.arange(4, dtype=torch.int32, device=q.device)
    rows, packed, values = (one.flatten(0, 1) for one in (q, k, v))
    varlen, varlen_lse, _ = library.flash_attn_varlen_func(
        rows, packed, values, starts * 20, starts * 50, 20, 50, **named
    )
    cached = library.flash_attn_with_kvcache(
        q[:, -4:].contiguous(), k, v, causal=True, alibi_slopes=slopes
    )
    for b, one in enumerate(sequences):
        check_slopes(*numpy(out[b], lse[b]), b, *one, PARAMS["slope"], causal=True)
        part = slice(20 * b, 20 * b + 20)
        check_slopes(
            *numpy(varlen[part], varlen_lse[:, part]), b, *one, PARAMS["slope"], causal=True
        )
        last = one[0][-4:], *one[1:]
        few = numpy(cached[b])[0], numpy(lse[b][:, -4:])[0]
        check_slopes(*few, b, *last, PARAMS["slope"], causal=True)


def test_sinks_in_every_function(torch_device, backend):
    sequences, (q, k, v) = dense(torch_device)
    (sinks,) = tensors(torch_device, SINKS)
    named = {"learnable_sink": sinks.half(), "causal": True, "return_attn_probs": True}

    def attend(q, k, v):
        return library.flash_attn_func(q, k, v, **named)

    out, lse, _ = attend(q, k, v)
    assert torch.equal(torch.compile(attend, backend=backend, fullgraph=True)(q, k, v)[0], out)
    cached, cached_lse = library.flash_attn_with_kvcache(
        q[:, -4:].contiguous(), k, v, causal=True, return_softmax_lse=True, learnable_sink=sinks
    )
    same = library.attention(q, k, v, mask="k <= p", learnable_sink=sinks)
    for b, one in enumerate(sequences):
        exact = with_sinks(*one, causal=True)
        check_sinks(*numpy(out[b], lse[b]), exact)
        check_sinks(*numpy(same[b], lse[b]), exact)
        last = with_sinks(one[0][-4:], *one[1:], causal=True)
        check_sinks(*numpy(cached[b], cached_lse[b]), last)
