"""Gradients of PyTorch tensors: what autograd and torch.compile see. Skipped, by name, without PyTorch.

Without a GPU the kernels run in the emulator, behind the same operators.
"""

import pytest

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")

pytest_plugins = "torch_device"
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


def inputs(device, dtype=torch.float16, seqlen_q=40, seqlen_k=50, head_dim=64):
    torch.manual_seed(0)
    q = torch.randn(2, seqlen_q, 4, head_dim).to(device, dtype)
    k, v = (torch.randn(2, seqlen_k, 2, head_dim).to(device, dtype) for _ in "kv")
    return tuple(x.requires_grad_() for x in (q, k, v))


def attend(q, k, v, causal=False, softcap=0.0, window=(-1, -1)):
    """(out, lse), of any dtype, differentiable."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[3] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    keys = torch.arange(k.shape[2], device=q.device)
    position = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    left, right = window[0], 0 if causal else window[1]
    hidden = (left >= 0) & (keys < position - left) | (right >= 0) & (keys > position + right)
    scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(3) @ v).transpose(1, 2), scores.logsumexp(3)


def gradients(function, tensors, dlse=True, dtype=None):
    """Of a loss of both results; by each of the tensors, in float64."""
    copies = [x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]
    out, lse = function(*copies)
    torch.manual_seed(1)
    weights = torch.randn(out.shape).to(out.device, out.dtype)
    rows = torch.randn(lse.shape).to(lse.device, lse.dtype)
    loss = (out * weights).sum() + ((lse * rows).sum() if dlse else 0)
    return [x.double() for x in torch.autograd.grad(loss, copies)]


def assert_gradients(ours, formula, tensors, dlse=True):
    """At most three times the error of the same formula in the storage type."""
    found = gradients(ours, tensors, dlse)
    exact = gradients(formula, tensors, dlse, torch.float64)
    naive = gradients(formula, tensors, dlse)
    for one, right, near in zip(found, exact, naive):
        assert (one - right).abs().max() <= 3 * (near - right).abs().max()


def with_lse(function, **options):
    def attend(*tensors):
        return function(*tensors, return_attn_probs=True, **options)[:2]

    return attend


@pytest.mark.parametrize("deterministic", [None, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window_size": (7, 3)}, {"softcap": 2.0, "causal": True}],
    ids=["full", "causal", "window", "softcap"],
)
def test_gradients_agree_with_autograd_of_the_formula(torch_device, options, deterministic):
    named = dict(options)
    window = named.pop("window_size", (-1, -1))
    assert_gradients(
        with_lse(library.flash_attn_func, deterministic=deterministic, **options),
        lambda *x: attend(*x, window=window, **named),
        inputs(torch_device),
    )


def test_a_head_dim_that_is_no_multiple_of_8(torch_device):
    assert_gradients(with_lse(library.flash_attn_func), attend, inputs(torch_device, head_dim=36))


def test_without_lse_and_of_a_scalar_that_autograd_expands(torch_device):
    tensors = inputs(torch_device)
    library.flash_attn_func(*tensors, causal=True).sum().backward()
    exact = [x.detach().double().requires_grad_() for x in tensors]
    attend(*exact, causal=True)[0].sum().backward()
    for one, right in zip(tensors, exact):
        torch.testing.assert_close(one.grad.double(), right.grad, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("head_dim", [64, 96])
def test_results_behind_or_beneath_others(torch_device, head_dim):
    """Their gradients begin at no multiple of 16 bytes, or have rows that are one."""
    tensors = inputs(torch_device, head_dim=head_dim)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    first = torch.zeros(1, dtype=tensors[0].dtype, device=torch_device)

    def behind(out):
        return torch.cat([first.to(out.dtype), out.flatten()]).square().sum()

    def beneath(out):
        return out.sum(0).square().sum()

    for loss in (behind, beneath):
        loss(library.flash_attn_func(*tensors, causal=True, deterministic=False)).backward()
        loss(attend(*exact, causal=True)[0]).backward()
    for one, right in zip(tensors, exact):
        torch.testing.assert_close(one.grad.double(), right.grad, rtol=0.02, atol=0.02)


def test_rows_that_no_sequence_uses_add_nothing_to_weights(torch_device):
    rows = torch.randn(80, 4, 64).to(torch_device, torch.float16)
    rows[20:40] = rows[60:] = float("nan")
    weights = torch.ones(64, dtype=torch.float16, device=torch_device, requires_grad=True)
    used = torch.tensor([20, 20], dtype=torch.int32, device=torch_device)
    starts = torch.tensor([0, 40, 80], dtype=torch.int32, device=torch_device)
    valid = torch.arange(80, device=torch_device)[:, None, None] % 40 < 20
    q = torch.where(valid, rows, 0) * weights
    out = library.flash_attn_varlen_func(
        q, q, q, starts, starts, 40, 40, seqused_q=used, seqused_k=used
    )
    loss = torch.where(valid, out, 0).sum()
    freed = [torch.full_like(q, float("nan")) for _ in range(12)]
    del freed  # what the gradients may be allocated in
    loss.backward()
    assert weights.grad.isfinite().all()


def test_packed_tensors(torch_device):
    q, k, v = inputs(torch_device, seqlen_q=50)
    kv = torch.stack([k, v], 2).detach()

    def formula(q, kv):
        return attend(q, *kv.unbind(2))

    assert_gradients(with_lse(library.flash_attn_kvpacked_func), formula, (q, kv))
    qkv = torch.stack([q[:, :, :2], k, v], 2).detach()
    assert_gradients(
        with_lse(library.flash_attn_qkvpacked_func, causal=True),
        lambda qkv: attend(*qkv.unbind(2), causal=True),
        (qkv,),
    )


def test_ragged_batches(torch_device):
    q, k, v = (x.flatten(0, 1).detach() for x in inputs(torch_device))
    starts_q, starts_k = (
        torch.tensor(x, dtype=torch.int32, device=torch_device) for x in ([0, 33, 80], [0, 41, 100])
    )

    def formula(q, k, v):
        results = [
            attend(*(x[None, a:b] for x, (a, b) in zip((q, k, v), (rows, keys, keys))), causal=True)
            for rows, keys in (((0, 33), (0, 41)), ((33, 80), (41, 100)))
        ]
        return torch.cat([o[0] for o, _ in results]), torch.cat([l[0] for _, l in results], 1)

    ours = with_lse(
        lambda q, k, v, **x: library.flash_attn_varlen_func(
            q, k, v, starts_q, starts_k, 47, 59, **x
        ),
        causal=True,
    )
    assert_gradients(ours, formula, (q, k, v))


def test_compiled_in_one_graph(torch_device, backend):
    tensors = inputs(torch_device)

    def step(q, k, v):
        return library.flash_attn_func(q * 2, k, v, causal=True).square().sum()

    step(*tensors).backward()
    expected = [x.grad.clone() for x in tensors]
    for x in tensors:
        x.grad = None
    torch.compile(step, fullgraph=True, backend=backend)(*tensors).backward()
    for x, right in zip(tensors, expected):
        torch.testing.assert_close(x.grad, right, rtol=1e-3, atol=1e-3)


def test_compiled_ragged_batches(torch_device, backend):
    q, k, v = (x.flatten(0, 1).detach().requires_grad_() for x in inputs(torch_device, seqlen_k=40))
    starts = torch.tensor([0, 33, 80], dtype=torch.int32, device=torch_device)

    def step(q, k, v):
        return library.flash_attn_varlen_func(q, k, v, starts, starts, 47, 47).square().sum()

    expected = torch.autograd.grad(step(q, k, v), (q, k, v))
    found = torch.autograd.grad(
        torch.compile(step, fullgraph=True, backend=backend)(q, k, v), (q, k, v)
    )
    for one, right in zip(found, expected):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)


def test_checkpointed(torch_device):
    tensors = inputs(torch_device)

    def attend(*x):
        return library.flash_attn_func(*x, causal=True)

    plain = torch.autograd.grad(attend(*tensors).square().sum(), tensors)
    again = torch.utils.checkpoint.checkpoint(attend, *tensors, use_reentrant=False)
    for one, right in zip(torch.autograd.grad(again.square().sum(), tensors), plain):
        assert torch.equal(one, right)


def test_the_same_bits_every_time(torch_device):
    tensors = inputs(torch_device)
    function = with_lse(library.flash_attn_func)
    first = gradients(function, tensors)
    for one, right in zip(gradients(function, tensors), first):
        assert torch.equal(one, right)


def test_one_tensor_alone_may_require_a_gradient(torch_device):
    q, k, v = (x.detach() for x in inputs(torch_device))
    k.requires_grad_()
    library.flash_attn_func(q, k, v).sum().backward()
    assert k.grad is not None and q.grad is None


def test_second_derivatives_are_refused(torch_device):
    q, k, v = inputs(torch_device)
    out = library.flash_attn_func(q, k, v)
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        dq.sum().backward()


def formula_of_parts(q, k1, k2, v1, v2):
    return attend(q, torch.cat([k1, k2], 1), torch.cat([v1, v2], 1))


def attend_to_parts(q, k1, k2, v1, v2, merge=None):
    """Attention to each half of the keys, then merged."""
    states = [
        library.flash_attn_func(q, k, v, return_attn_probs=True)[:2]
        for k, v in ((k1, v1), (k2, v2))
    ]
    return (merge or library.merge_attn_states)(*states[0], *states[1], return_lse=True)


def parts(device):
    q, k, v = (x.detach() for x in inputs(device))
    return (q, *k.split([20, 30], 1), *v.split([20, 30], 1))


def test_merged_states_have_the_gradients_of_the_whole(torch_device):
    assert_gradients(attend_to_parts, formula_of_parts, parts(torch_device))


@pytest.mark.parametrize("lse_of_nothing", [float("-inf"), float("inf")])
def test_a_state_without_keys_has_no_gradient_and_adds_none(torch_device, lse_of_nothing):
    q, k, _, v, _ = parts(torch_device)
    out, lse, _ = library.flash_attn_func(q, k, v, return_attn_probs=True)
    nothing = torch.full_like(out, float("nan")), torch.full_like(lse, lse_of_nothing)
    states = [x.detach().clone().requires_grad_() for x in (out, lse, *nothing)]
    both = library.merge_attn_states(*states, return_lse=True)
    weights = [torch.randn_like(x) for x in both]
    found = torch.autograd.grad(both, states, weights)
    for one, right in zip(found, (*weights, *map(torch.zeros_like, nothing))):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-5)


def test_merging_is_compiled_in_one_graph(torch_device, backend):
    tensors = [x.requires_grad_() for x in parts(torch_device)]

    def step(*tensors):
        out, lse = attend_to_parts(*tensors)
        return out.float().square().sum() + lse.sum()

    expected = torch.autograd.grad(step(*tensors), tensors)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for one, right in zip(torch.autograd.grad(compiled(*tensors), tensors), expected):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)


@gpu
def test_attune_itself_differentiates_merges():
    def ours(*tensors):
        return attend_to_parts(*tensors, merge=attune.merge_attn_states)

    assert_gradients(ours, formula_of_parts, parts("cuda"))


@gpu
def test_attune_itself_differentiates():
    tensors = inputs("cuda")
    assert_gradients(
        with_lse(attune.flash_attn_func, causal=True),
        lambda *x: attend(*x, causal=True),
        tensors,
    )
    assert_gradients(
        with_lse(attune.flash_attn_kvpacked_func),
        lambda q, kv: attend(q, *kv.unbind(2)),
        (tensors[0], torch.stack(tensors[1:], 2).detach()),
    )


@gpu
def test_keys_in_a_cache_have_no_gradient():
    q, k, v = (x.flatten(0, 1) for x in inputs("cuda"))
    starts = torch.tensor([0, 40, 80], dtype=torch.int32, device="cuda")
    table = torch.zeros(2, 1, dtype=torch.int32, device="cuda")
    pages = [x.detach()[None].clone().requires_grad_() for x in (k, v)]
    for module in (attune, library):
        with pytest.raises(NotImplementedError, match="requires a gradient"):
            module.flash_attn_varlen_func(q, *pages, starts, starts, 40, 40, block_table=table)


@gpu
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_training_step_is_captured_in_a_graph(deterministic):
    tensors = inputs("cuda")

    def step():
        out = attune.flash_attn_func(*tensors, causal=True, deterministic=deterministic)
        return torch.autograd.grad(out.sum(), tensors)

    expected = [x.clone() for x in step()]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.cuda.synchronize()
    for one, right in zip(found, expected):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3)
