"""Ragged batches, store_kvcache and merge_attn_states in attune.torch: what torch.compile and autograd see.

Skipped, by name, without PyTorch. Without a GPU the kernels run in the emulator, behind the same operators.
"""

import numpy as np
import pytest
from cached import LENGTHS, int32, paged
from cached import assert_attends as assert_cached
from cached import problem as cached_problem
from test_store import caches, halves, int64, new
from test_varlen import assert_each_attends, problem

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from torch._dynamo.testing import CompileCounterWithBackend

pytest_plugins = "torch_device"


def on(device, *values):
    return [
        torch.from_numpy(one).to(device) if isinstance(one, np.ndarray) else one for one in values
    ]


def test_ragged_batches_agree_with_float64(torch_device):
    arguments = problem()
    tensors = on(torch_device, *arguments)
    options = {"window_size": (20, 3), "softcap": 0.7}
    out, lse, dmask = library.flash_attn_varlen_func(*tensors, return_attn_probs=True, **options)
    result = (out.cpu().numpy(), lse.cpu().numpy(), dmask)
    assert_each_attends(result, *arguments[:3], window=(20, 3), softcap=0.7)
    assert torch.equal(library.flash_attn_varlen_func(*tensors, **options), out)


def test_the_used_queries_are_those_of_the_package(torch_device):
    arguments = problem()
    used = int32([0, 2, 65, 1])
    options = {"causal": True, "return_attn_probs": True}
    expected = attune.flash_attn_varlen_func(*arguments, seqused_q=used, **options)
    *tensors, on_device = on(torch_device, *arguments, used)
    out, lse, _ = library.flash_attn_varlen_func(*tensors, seqused_q=on_device, **options)
    rows = np.concatenate([at + np.arange(count) for at, count in zip(arguments[3], used)])
    for one, other in ((out, expected[0]), (lse.T, expected[1].T)):
        np.testing.assert_allclose(one.cpu().numpy()[rows], other[rows], rtol=2e-2, atol=2e-3)


def test_ragged_queries_attend_to_pages_where_compiled(torch_device, backend):
    q, k, v = cached_problem(seqlen_q=3)
    *pools, table = paged(k, v, 16)
    rows, k_pool, v_pool, on_table = on(torch_device, q.reshape(-1, *q.shape[2:]), *pools, table)
    cu_seqlens, used = on(torch_device, int32(np.arange(len(q) + 1) * 3), int32(LENGTHS))

    def attend(rows):
        return library.flash_attn_varlen_func(
            *(rows, k_pool, v_pool, cu_seqlens, None, 3, 150),
            causal=True,
            block_table=on_table,
            seqused_k=used,
            return_attn_probs=True,
        )[:2]

    out, lse = torch.compile(attend, fullgraph=True, backend=backend)(rows)
    result = out.cpu().numpy().reshape(q.shape), lse.cpu().numpy().reshape(-1, len(q), 3)
    assert_cached(result[:1] + (result[1].swapaxes(0, 1),), q, k, v, LENGTHS, causal=True)


def test_operators_keep_their_schema_and_their_fakes_agree(torch_device):
    operators = torch.ops.attune
    arguments = on(torch_device, *problem())
    torch.library.opcheck(operators.flash_attn_varlen.default, arguments, {"causal": True})
    states = on(torch_device, *halves()[:4])
    torch.library.opcheck(operators.merge_attn_states.default, states)
    places = on(torch_device, int64([[1, 2, 3], [4, 9, 6]]))
    stored = on(torch_device, *new(), *caches())
    torch.library.opcheck(operators.store_kvcache.default, (*stored, *places))


def test_a_compiled_step_writes_its_cache(torch_device, backend):
    counter = CompileCounterWithBackend(backend)

    def step(k, v, k_cache, v_cache, slots):
        library.store_kvcache(k * 2, v, k_cache, v_cache, slot_mapping=slots)
        return k_cache.sum()

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for given in ([[1, 2, 3], [4, 9, 6]], [[0, -1, 7], [8, 5, 10]]):
        k, v, slots = on(torch_device, *new(), int64(given))
        expected, found = (on(torch_device, *caches()) for _ in range(2))
        assert torch.equal(compiled(k, v, *found, slots), step(k, v, *expected, slots))
        assert all(map(torch.equal, found, expected))
    assert counter.frame_count == 1


def test_halves_make_the_whole_where_compiled(torch_device, backend):
    o1, lse1, o2, lse2, exact, _ = halves()
    states = on(torch_device, o1, lse1, o2, lse2)
    compiled = torch.compile(library.merge_attn_states, fullgraph=True, backend=backend)
    out = compiled(*states)
    np.testing.assert_allclose(out.cpu().numpy().astype(np.float64), exact, rtol=0, atol=2e-3)
    both = library.merge_attn_states(*states, return_lse=True)
    assert torch.equal(out, both[0])


def test_gradients_are_refused_by_the_fakes():
    q = torch.empty(8, 2, 64, device="meta", dtype=torch.float16, requires_grad=True)
    lse = torch.empty(2, 8, device="meta")
    with pytest.raises(NotImplementedError, match="o1 requires a gradient"):
        torch.ops.attune.merge_attn_states(q, lse, q.detach(), lse)
    with pytest.raises(NotImplementedError, match="v requires a gradient"):
        library.store_kvcache(q.detach(), q, q.detach(), q.detach())


def test_what_is_no_tensor_is_named():
    q = torch.empty(8, 2, 64, dtype=torch.float16)
    with pytest.raises(TypeError, match="cu_seqlens_k is a NoneType; it must be a torch.Tensor"):
        library.flash_attn_varlen_func(q, q, q, q, None, 1, 1)
    with pytest.raises(TypeError, match="v_cache is a list; it must be a torch.Tensor"):
        library.store_kvcache(q, q, q, [])
    with pytest.raises(TypeError, match="lse2 is a float; it must be a torch.Tensor"):
        library.merge_attn_states(q, q, q, 1.0)
