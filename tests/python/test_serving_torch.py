"""Ragged batches, store_kvcache and merge_attn_states of PyTorch tensors. Skipped, by name, without a GPU."""

import numpy as np
import pytest
from cached import assert_attends, int32, paged
from cached import problem as cached_problem
from conftest import random_array
from test_kvcache_torch import arrays_of, gpu, tensor
from test_store import angles, halves, int64, new
from test_varlen import (
    LENGTHS_Q,
    SHORT_Q,
    any_queries,
    assert_each_attends,
    problem,
    starts,
)

import attune

torch = pytest.importorskip("torch")


def on_gpu(*values):
    return [tensor(one) if isinstance(one, np.ndarray) else one for one in values]


@gpu
@any_queries
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, {}),
        ({"causal": True}, {"causal": True}),
        ({"window_size": (20, 3)}, {"window": (20, 3)}),
        ({"softcap": 0.7}, {"softcap": 0.7}),
    ],
    ids=["plain", "causal", "window", "softcap"],
)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_ragged_batches_agree_with_float64(dtype, head_dim, options, asked, lengths_q):
    arguments = problem(dtype, head_dim=head_dim, lengths_q=lengths_q)
    out, lse, dmask = attune.flash_attn_varlen_func(
        *on_gpu(*arguments), return_attn_probs=True, **options
    )
    result = (*arrays_of((out, lse)), dmask)
    assert_each_attends(result, *arguments[:3], lengths_q=lengths_q, **asked)


@gpu
@pytest.mark.parametrize(
    ("captured", "lengths_q"),
    [((10, 20, 30, 16), LENGTHS_Q), ((4, 8, 2, 0), SHORT_Q)],
    ids=["long", "short"],
)
def test_a_captured_ragged_batch_has_the_lengths_of_each_replay(captured, lengths_q):
    q, k, v, cu_q, cu_k, _, _ = problem(lengths_q=lengths_q)
    longest = max(*captured, *lengths_q)
    tensors = on_gpu(q, k, v)
    at_q, at_k = on_gpu(cu_q, cu_k)
    at_q.copy_(tensor(starts(captured)))
    at_k.copy_(tensor(starts((60, 60, 60, 7))))

    def call():
        return attune.flash_attn_varlen_func(
            *tensors, at_q, at_k, longest, 100, return_attn_probs=True
        )

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse, _ = call()
    at_q.copy_(tensor(cu_q))
    at_k.copy_(tensor(cu_k))
    graph.replay()
    assert_each_attends((*arrays_of((out, lse)), None), q, k, v, lengths_q=lengths_q)


@gpu
@pytest.mark.parametrize("interleaved", [True, False])
def test_stored_keys_are_those_of_the_emulator(dtype, interleaved):
    k, v = new(tokens=40, dtype=dtype)
    cos, sin = angles(rotations=64, dtype=dtype)
    table = int32([[4, 1, 0], [3, 5, 2]])
    caches = [np.full((6, 16, 2, 64), 7, dtype) for _ in "kv"]
    copies = on_gpu(*caches)
    options = {
        "cache_seqlens": int32([3, 8]),
        "block_table": table,
        "rotary_cos": cos,
        "rotary_sin": sin,
    }
    attune.store_kvcache(k, v, *caches, **options, rotary_interleaved=interleaved)
    named = dict(zip(options, on_gpu(*options.values())))
    attune.store_kvcache(*on_gpu(k, v), *copies, **named, rotary_interleaved=interleaved)
    for copy, cache in zip(copies, caches):
        difference = copy.float().cpu().numpy() - cache.astype(np.float32)
        assert np.abs(difference).max() <= (2e-3 if dtype.name == "float16" else 2e-2)


@gpu
def test_a_captured_step_stores_where_each_replay_says():
    q, k, v = cached_problem()
    *pools, table = paged(k, v, 16)
    new_k, new_v = (np.ones((len(q), 1, *x.shape[2:]), x.dtype) for x in (k, v))
    tensors = on_gpu(q, *pools, new_k, new_v, int32([0] * 4), table)
    on_q, k_pool, v_pool, on_k, on_v, lengths, on_table = tensors

    def step():
        attune.store_kvcache(
            *(on_k, on_v, k_pool, v_pool), cache_seqlens=lengths, block_table=on_table
        )
        return attune.flash_attn_with_kvcache(
            on_q,
            k_pool,
            v_pool,
            cache_seqlens=lengths + 1,
            block_table=on_table,
            return_softmax_lse=True,
        )

    clean = [pool.clone() for pool in (k_pool, v_pool)]
    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    for given in ([0, 3, 64, 149], [77, 15, 16, 1]):
        for pool, before in zip((k_pool, v_pool), clean):
            pool.copy_(before)
        lengths.copy_(tensor(int32(given)))
        graph.replay()
        k_now, v_now = k.copy(), v.copy()
        k_now[range(4), given], v_now[range(4), given] = new_k[:, 0], new_v[:, 0]
        assert_attends(arrays_of(result), q, k_now, v_now, [length + 1 for length in given])


@gpu
def test_slots_of_rows_and_their_padding():
    k, v = (x.reshape(6, 2, 64) for x in new())
    k_cache, v_cache = (torch.full((20, 1, 2, 64), 7, dtype=torch.float16).cuda() for _ in "kv")
    slots = int64([17, -1, 3, 20, 0])
    attune.store_kvcache(*on_gpu(k, v), k_cache, v_cache, slot_mapping=tensor(slots))
    for cache, stored in ((k_cache, k), (v_cache, v)):
        rows = cache.cpu().numpy()[:, 0]
        assert (rows[[17, 3, 0]] == stored[[0, 2, 4]]).all()
        assert (np.delete(rows, [17, 3, 0], axis=0) == 7).all()


@gpu
def test_halves_make_the_whole(dtype):
    *states, exact, exact_lse = halves(dtype)
    result = attune.merge_attn_states(*on_gpu(*states), return_lse=True)
    out, lse = arrays_of(result)
    tolerance = 2e-3 if dtype.name == "float16" else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)


@gpu
def test_wrong_tensors_are_named():
    o1, lse1, o2, lse2 = on_gpu(*halves()[:4])
    with pytest.raises(ValueError, match="lse2 is on the device cpu; it must be on cuda:0"):
        attune.merge_attn_states(o1, lse1, o2, lse2.cpu())
    with pytest.raises(NotImplementedError, match="o2 requires a gradient"):
        attune.merge_attn_states(o1, lse1, o2.requires_grad_(), lse2, out=torch.empty_like(o1))
    k, v = on_gpu(*new())
    with pytest.raises(TypeError, match="slot_mapping has dtype torch.int16; it must be int64 or int32"):
        slots = torch.zeros(2, 3, dtype=torch.int16, device="cuda")
        attune.store_kvcache(k, v, torch.empty_like(k), torch.empty_like(v), slot_mapping=slots)


@gpu
@pytest.mark.parametrize("rotary_dim", [0, 32])
def test_a_captured_step_appends_where_each_replay_says(rotary_dim):
    q, k, v = cached_problem(seqlen_q=2)
    *pools, table = paged(k, v, 16)
    new = [random_array((len(q), 2, *k.shape[2:]), k.dtype, seed) for seed in (7, 8)]
    named = {"block_table": table, "k": new[0], "v": new[1]}
    if rotary_dim > 0:
        named["rotary_cos"], named["rotary_sin"] = angles(160, rotary_dim)
    on_q, k_pool, v_pool, lengths = on_gpu(q, *pools, int32([0] * 4))
    options = dict(zip(named, on_gpu(*named.values()))) | {"causal": True}

    def step():
        return attune.flash_attn_with_kvcache(
            on_q, k_pool, v_pool, cache_seqlens=lengths, return_softmax_lse=True, **options
        )

    clean = [pool.clone() for pool in (k_pool, v_pool)]
    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    for given in ([0, 3, 64, 148], [77, 15, 16, 1]):
        for pool, before in zip((k_pool, v_pool), clean):
            pool.copy_(before)
        lengths.copy_(tensor(int32(given)))
        graph.replay()
        copies = [pool.copy() for pool in pools]
        expected = attune.flash_attn_with_kvcache(
            q, *copies, cache_seqlens=int32(given), causal=True, return_softmax_lse=True, **named
        )
        for found, wanted in zip((*arrays_of(result), k_pool, v_pool), (*expected, *copies)):
            found = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
