"""Dropout: NumPy arrays in the emulator, whose mask is that of NumPy's arithmetic, and PyTorch's generator.

What PyTorch sees is skipped, by name, without it; without a GPU the kernels run in the emulator.
"""

import re

import numpy as np
import pytest
from conftest import random_array

import attune

try:
    import torch
except ImportError:
    torch = None
else:
    pytest_plugins = "torch_device"

P = 0.3
with_torch = pytest.mark.skipif(torch is None, reason="there is no PyTorch")


def philox(counter, seed):
    """The 16 bytes of each counter (..., 4), in four words."""
    words = [counter[..., i].astype(np.uint64) for i in range(4)]
    low = np.uint64(0xFFFFFFFF)
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(7):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
            second & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(words, -1)


def kept(shape, state, p=P):
    """Which weights (batch, heads, rows, keys) dropout keeps, as the documentation has it."""
    batch, heads, rows, keys = shape
    b, h, i, j = np.indices(shape)
    seed, offset = (int(x) for x in state)
    counter = np.stack(
        [
            i // 32 * 8 + i % 8 + ((offset >> 32) << 20),
            j // 32 * 8 + j % 8,
            b * heads + h,
            np.full(shape, offset & 0xFFFFFFFF),
        ],
        -1,
    )
    words = philox(counter, seed)
    word = np.take_along_axis(words, (i // 16 % 2 * 2 + j // 16 % 2)[..., None], -1)[..., 0]
    byte = word >> (8 * (i // 8 % 2 * 2 + j // 8 % 2)).astype(np.uint64) & np.uint64(255)
    return byte < round(256 * (1 - p))


def formula(q, k, v, mask, causal=False):
    """Attention in float64 with dropped weights."""
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    position = np.arange(scores.shape[2])[:, None] + scores.shape[3] - scores.shape[2]
    scores = np.where(causal & (np.arange(scores.shape[3]) > position), -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights /= weights.sum(axis=3, keepdims=True)
    weights *= mask / (round(256 * (1 - P)) / 256)
    return (weights @ v).transpose(0, 2, 1, 3)


def inputs(seqlen_q=70, seqlen_k=90):
    q = random_array((2, seqlen_q, 4, 64), "float16", 1)
    k, v = (random_array((2, seqlen_k, 2, 64), "float16", seed) for seed in (2, 3))
    return q, k, v


STATE = np.array([0x1234_5678_9ABC, 0x5_0000_0004], np.int64)


@pytest.mark.parametrize("causal", [False, True])
def test_the_mask_is_the_documented_one(causal):
    q, k, v = inputs()
    out, lse, _ = attune.flash_attn_func(
        q, k, v, P, causal=causal, return_attn_probs=True, rng_state=STATE
    )
    exact = formula(q, k, v, kept((2, 4, 70, 90), STATE), causal)
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=0, atol=5e-3)
    whole = attune.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    np.testing.assert_array_equal(lse, whole[1])


def test_packed_and_ragged_batches_drop_the_same():
    q, k, v = inputs(70, 70)
    expected = attune.flash_attn_func(q, k, v, P, rng_state=STATE)
    kv = np.stack([k, v], 2)
    np.testing.assert_array_equal(
        attune.flash_attn_kvpacked_func(q, kv, P, rng_state=STATE), expected
    )
    starts = np.array([0, 70, 140], np.int32)
    rows = [x.reshape(140, *x.shape[2:]) for x in (q, k, v, kv)]
    ragged = attune.flash_attn_varlen_func(*rows[:3], starts, starts, 70, 70, P, rng_state=STATE)
    np.testing.assert_array_equal(ragged.reshape(expected.shape), expected)
    packed = attune.flash_attn_varlen_kvpacked_func(
        rows[0], rows[3], starts, starts, 70, 70, P, rng_state=STATE
    )
    np.testing.assert_array_equal(packed, ragged)


def test_few_queries_drop_as_many_do():
    q, k, v = inputs(5, 90)
    expected = attune.flash_attn_func(q, k, v, P, causal=True, rng_state=STATE)
    starts_q, starts_k = np.array([0, 5, 10], np.int32), np.array([0, 90, 180], np.int32)
    rows = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
    ragged = attune.flash_attn_varlen_func(
        *rows, starts_q, starts_k, 5, 90, P, causal=True, rng_state=STATE
    )
    np.testing.assert_array_equal(ragged.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dropout_p": 1.0}, ValueError, "dropout_p is 1; it must be at least 0 and less than 1"),
        ({"dropout_p": -0.1}, ValueError, "dropout_p is -0.1; it must be at least 0"),
        ({"dropout_p": "a"}, TypeError, "dropout_p is a str; it must be a number"),
        ({"rng_state": None}, ValueError, "rng_state is None; with dropout_p 0.3"),
        ({"rng_state": STATE[:1]}, ValueError, "rng_state has shape (1,)"),
        ({"rng_state": STATE.astype("int32")}, TypeError, "rng_state has dtype int32"),
    ],
)
def test_mistakes_are_named(options, error, message):
    q, k, v = inputs(3, 4)
    named = {"dropout_p": P, "rng_state": STATE} | options
    with pytest.raises(error, match=re.escape(message)):
        attune.flash_attn_func(q, k, v, **named)


def tensors(device, requires_grad=True):
    made = (torch.from_numpy(x).to(device) for x in inputs())
    return tuple(x.requires_grad_(requires_grad) for x in made)


def reference(mask, device):
    """The formula as PyTorch differentiates it."""

    def attend(q, k, v, causal=False):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        scores = q @ k.mT * q.shape[3] ** -0.5
        weights = scores.softmax(3) * torch.from_numpy(mask).to(device, q.dtype)
        return (weights * (256 / round(256 * (1 - P))) @ v).transpose(1, 2)

    return attend


@with_torch
def test_gradients_drop_what_the_output_dropped(torch_device):
    import attune.torch as library

    given = tensors(torch_device)
    state = torch.from_numpy(STATE).to(torch_device)
    attend = reference(kept((2, 4, 70, 90), STATE), torch_device)
    exact = [x.detach().double().requires_grad_() for x in given]
    near = [x.detach().requires_grad_() for x in given]
    torch.manual_seed(0)
    weights = torch.randn(given[0].shape).to(torch_device, torch.float16)
    found = torch.autograd.grad(library.flash_attn_func(*given, P, rng_state=state), given, weights)
    right = torch.autograd.grad(attend(*exact), exact, weights.double())
    naive = torch.autograd.grad(attend(*near), near, weights)
    for one, good, bad in zip(found, right, naive):
        assert (one.double() - good).abs().max() <= 3 * (bad.double() - good).abs().max()


@with_torch
def test_the_generator_says_what_is_dropped(torch_device):
    import attune.torch as library

    given = tensors(torch_device, requires_grad=False)
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outputs.append([library.flash_attn_func(*given, P) for _ in range(2)])
    assert torch.equal(outputs[0][0], outputs[1][0]) and torch.equal(outputs[0][1], outputs[1][1])
    assert not torch.equal(outputs[0][0], outputs[0][1])
    assert not torch.equal(outputs[0][0], outputs[2][0])


@with_torch
def test_a_checkpoint_drops_the_same_again(torch_device):
    import attune.torch as library

    given = tensors(torch_device)

    def attend(*x):
        return library.flash_attn_func(*x, P, causal=True).float().square().sum()

    torch.manual_seed(3)
    plain = torch.autograd.grad(attend(*given), given)
    torch.manual_seed(3)
    again = torch.utils.checkpoint.checkpoint(attend, *given, use_reentrant=False)
    for one, right in zip(torch.autograd.grad(again, given), plain):
        assert torch.equal(one, right)


@with_torch
def test_compiled_in_one_graph(torch_device, backend):
    import attune.torch as library

    given = tensors(torch_device)
    starts = torch.tensor([0, 70], dtype=torch.int32, device=torch_device)

    def step(q, k, v, state):
        dense = library.flash_attn_func(q, k, v, P, rng_state=state).float().square().sum()
        drawn = library.flash_attn_func(q, k, v, P).float().square().sum()
        rows = library.flash_attn_varlen_func(q[0], q[0], q[0], starts, starts, 70, 70, P)
        return dense, drawn + rows.float().sum()

    state = torch.from_numpy(STATE).to(torch_device)
    expected = torch.autograd.grad(step(*given, state)[0], given)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for one, right in zip(torch.autograd.grad(compiled(*given, state)[0], given), expected):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(torch is None or not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_each_replay_of_a_graph_drops_others():
    given = tensors("cuda")

    def step():
        out = attune.flash_attn_func(*given, P)
        return out, *torch.autograd.grad(out.sum(), given)

    step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    replays = []
    for _ in range(2):
        graph.replay()
        replays.append([x.clone() for x in found])
    torch.cuda.synchronize()
    for one, other in zip(*replays):
        assert not torch.equal(one, other)
