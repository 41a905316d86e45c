"""Attention to a cache in attune.torch: what torch.compile and autograd see. Skipped, by name, without PyTorch.

Without a GPU the kernels run in the emulator, behind the same operator.
"""

import numpy as np
import pytest
from cached import LENGTHS, assert_attends, int32, paged, problem
from test_store import angles

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from torch._dynamo.testing import CompileCounterWithBackend

pytest_plugins = "torch_device"


def tensors(device, *arrays):
    return [torch.from_numpy(array).to(device) for array in arrays]


def arrays(*tensors):
    return tuple(tensor.cpu().numpy() for tensor in tensors)


few_and_many = pytest.mark.parametrize("seqlen_q", [2, 20], ids=["few", "many"])


@pytest.mark.parametrize("page_size", [None, 16])
@few_and_many
def test_agrees_with_float64(torch_device, page_size, seqlen_q):
    q, k, v = problem(seqlen_q=seqlen_q)
    cache, options = (k, v), {}
    if page_size is not None:
        *cache, table = paged(k, v, page_size)
        options["block_table"] = tensors(torch_device, table)[0]
    (options["cache_seqlens"],) = tensors(torch_device, int32(LENGTHS))
    options |= {"causal": True, "window_size": (40, 0), "num_splits": 2, "softmax_scale": 0.2}
    copies = tensors(torch_device, q, *cache)
    out, lse = library.flash_attn_with_kvcache(*copies, return_softmax_lse=True, **options)
    assert_attends(arrays(out, lse), q, k, v, LENGTHS, causal=True, window=(40, 0), scale=0.2)
    assert torch.equal(library.flash_attn_with_kvcache(*copies, **options), out)


def test_ragged_queries_are_those_of_the_package(torch_device):
    q, k, v = problem(seqlen_q=3)
    ragged = np.concatenate([q[0, :2], q[1], q[3, :1]])
    starts = int32([0, 2, 5, 5, 6])
    options = {"causal": True, "return_softmax_lse": True, "max_seqlen_q": 3}
    expected = attune.flash_attn_with_kvcache(
        ragged, k, v, cache_seqlens=int32(LENGTHS), cu_seqlens_q=starts, num_splits=2, **options
    )
    tensors_of = tensors(torch_device, ragged, k, v, int32(LENGTHS), starts)
    found = library.flash_attn_with_kvcache(
        *tensors_of[:3],
        cache_seqlens=tensors_of[3],
        cu_seqlens_q=tensors_of[4],
        num_splits=2,
        **options,
    )
    for one, other in zip(arrays(*found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-3)


def test_one_length_and_places_in_a_larger_cache(torch_device):
    q, k, v = problem()
    index = int32([3, 1])
    copies = tensors(torch_device, q[:2], k, v)
    (places,) = tensors(torch_device, index)
    result = library.flash_attn_with_kvcache(
        *copies, cache_seqlens=70, cache_batch_idx=places, return_softmax_lse=True
    )
    assert_attends(arrays(*result), q[:2], k[index], v[index], [70, 70])


@pytest.mark.parametrize("appends", [False, True])
@few_and_many
def test_a_left_pad_is_that_of_the_package(torch_device, appends, seqlen_q):
    q, k, v = problem(seqlen_q=seqlen_q)
    new = (k[:, 5 : 5 + seqlen_q], v[:, 5 : 5 + seqlen_q]) if appends else ()
    lengths, leftpad = int32([3, 9, 20, 130]), int32([0, 9, 7, 100])
    expected = attune.flash_attn_with_kvcache(
        *(q, k.copy(), v.copy(), *new),
        cache_seqlens=lengths,
        cache_leftpad=leftpad,
        return_softmax_lse=True,
    )
    copies = tensors(torch_device, q, k, v, *(x.copy() for x in new))
    on_device = tensors(torch_device, lengths, leftpad)
    found = library.flash_attn_with_kvcache(
        *copies,
        cache_seqlens=on_device[0],
        cache_leftpad=on_device[1],
        return_softmax_lse=True,
    )
    for one, other in zip(arrays(*found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-3)


@few_and_many
def test_the_operator_keeps_its_schema_and_its_fake_agrees(torch_device, seqlen_q):
    copies = tensors(torch_device, *problem(seqlen_q=seqlen_q))
    (lengths,) = tensors(torch_device, int32(LENGTHS))
    operator = torch.ops.attune.flash_attn_with_kvcache.default
    torch.library.opcheck(operator, (*copies, lengths), {"causal": True, "cache_leftpad": lengths})
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in copies]
    torch.library.opcheck(operator, (*heads_first, None, 70))


def test_one_compilation_serves_every_length(torch_device, backend):
    counter = CompileCounterWithBackend(backend)

    def step(q, k, v, new, lengths):
        rows = torch.arange(len(q), device=q.device)
        k[rows, lengths.long() - 1] = new
        return library.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths) * 2

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    q, k, v = problem()
    copies = tensors(torch_device, q, k, v)
    new = torch.ones_like(copies[1][:, 0])
    for given in ([1, 20, 65, 150], [2, 21, 66, 9]):
        (lengths,) = tensors(torch_device, int32(given))
        expected = step(copies[0], copies[1].clone(), copies[2], new, lengths)
        assert torch.equal(compiled(*copies, new, lengths), expected)
    assert counter.frame_count == 1


@pytest.mark.parametrize("place", range(3))
def test_gradients_are_refused_by_the_fake(place):
    copies = [torch.empty(1, 8, 2, 64, device="meta", dtype=torch.float16) for _ in range(3)]
    copies[place].requires_grad_()
    name = ("q", "k_cache", "v_cache")[place]
    with pytest.raises(NotImplementedError, match=f"{name} requires a gradient"):
        library.flash_attn_with_kvcache(*copies)


def test_what_is_no_tensor_is_named():
    q = torch.empty(1, 8, 2, 64, dtype=torch.float16)
    with pytest.raises(TypeError, match="v_cache is a NoneType; it must be a torch.Tensor"):
        library.flash_attn_with_kvcache(q, q, None)


@few_and_many
def test_a_compiled_step_that_appends_writes_its_cache(torch_device, backend, seqlen_q):
    counter = CompileCounterWithBackend(backend)
    cos, sin = tensors(torch_device, *angles(rotations=160))

    def step(q, k_cache, v_cache, k, v, lengths):
        out = library.flash_attn_with_kvcache(
            *(q, k_cache, v_cache),
            k=k,
            v=v,
            rotary_cos=cos,
            rotary_sin=sin,
            cache_seqlens=lengths,
            causal=True,
        )
        return out, k_cache.sum()

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    q, k, v = problem(seqlen_q=seqlen_q)
    for given in ([1, 20, 65, 130], [2, 21, 66, 9]):
        copies = tensors(torch_device, q, k, v)
        expected = [x.clone() for x in copies]
        new = [x[:, 5 : 5 + seqlen_q].clone() for x in copies[1:]]
        (lengths,) = tensors(torch_device, int32(given))
        for found, wanted in zip(
            compiled(*copies, *new, lengths), step(*expected, *new, lengths), strict=True
        ):
            assert torch.equal(found, wanted)
        assert all(map(torch.equal, copies, expected))
        assert torch.equal(copies[2][0, given[0] : given[0] + seqlen_q], new[1][0])
    assert counter.frame_count == 1


@few_and_many
def test_the_operator_that_appends_keeps_its_schema_and_its_fake_agrees(torch_device, seqlen_q):
    q, k_cache, v_cache = tensors(torch_device, *problem(seqlen_q=seqlen_q))
    new = [x[:, 5 : 5 + seqlen_q].clone() for x in (k_cache, v_cache)]
    (lengths,) = tensors(torch_device, int32([3, 9, 20, 1]))
    operator = torch.ops.attune.flash_attn_with_kvcache_append.default
    options = {"cache_seqlens": lengths, "causal": True, "softcap": 2.0, "cache_leftpad": lengths}
    torch.library.opcheck(operator, (q, k_cache, v_cache, *new), options)
