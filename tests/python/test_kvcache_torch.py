"""Attention of PyTorch tensors to a cache. Skipped, by name, where PyTorch or a GPU is missing."""

import threading

import numpy as np
import pytest
from cached import LENGTHS, assert_attends, int32, paged, problem

import attune

torch = pytest.importorskip("torch")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


def tensor(array, device="cuda"):
    """A copy. PyTorch takes no bfloat16 of NumPy's."""
    if array.dtype in (np.int32, np.int64, np.float32):
        return torch.from_numpy(array).to(device)
    bits = torch.from_numpy(array.view(np.int16)).to(device)
    return bits.view(torch.float16 if array.dtype == np.float16 else torch.bfloat16)


def attend(*arrays, **options):
    """(out, lse), as NumPy arrays, of tensors."""
    return arrays_of(attune.flash_attn_with_kvcache(*arrays, return_softmax_lse=True, **options))


def arrays_of(result):
    out, lse = result
    dtype = np.dtype("float16")
    if out.dtype == torch.bfloat16:
        dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return out.cpu().view(torch.int16).numpy().view(dtype), lse.cpu().numpy()


def test_cpu_tensors_are_refused():
    q, k, v = (tensor(array, "cpu") for array in problem())
    with pytest.raises(ValueError, match="q is on the device cpu; it must be on a CUDA device"):
        attune.flash_attn_with_kvcache(q, k, v)


@gpu
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"heads_q": 6, "seqlen_q": 3}, {"causal": True}),
        ({"seqlen_q": 5, "head_dim": 128}, {"window_size": (200, 1)}),
        ({"heads_q": 20, "heads_kv": 1}, {"num_splits": 5}),
        ({"seqlen_q": 150, "heads_q": 8}, {"causal": True}),
        ({"seqlen_q": 17, "head_dim": 128}, {"window_size": (200, 1)}),
    ],
    ids=["plain", "causal", "window", "splits", "many_causal", "many_window"],
)
@pytest.mark.parametrize("page_size", [None, 16, 64, 1000])
def test_agrees_with_float64(dtype, sizes, options, page_size):
    lengths = [0, 1, 700, 333]
    q, k, v = problem(dtype, room=700, **sizes)
    options = options | {"cache_seqlens": tensor(int32(lengths))}
    cache = (k, v)
    if page_size is not None:
        *cache, table = paged(k, v, page_size)
        options["block_table"] = tensor(table)
    result = attend(*(tensor(array) for array in (q, *cache)), **options)
    assert_attends(
        result,
        *(q, k, v, lengths),
        causal=options.get("causal", False),
        window=options.get("window_size", (-1, -1)),
    )


@gpu
@pytest.mark.parametrize(("given", "length"), [(None, 150), (65, 65), (0, 0)])
@pytest.mark.parametrize("seqlen_q", [1, 40])
def test_one_length_for_all(given, length, seqlen_q):
    q, k, v = problem(seqlen_q=seqlen_q)
    result = attend(tensor(q), tensor(k), tensor(v), cache_seqlens=given)
    assert_attends(result, q, k, v, [length] * len(LENGTHS))


@gpu
def test_sequences_anywhere_in_a_larger_cache():
    q, k, v = problem()
    index = int32([3, 0, 2])
    result = attend(tensor(q[:3]), tensor(k), tensor(v), cache_batch_idx=tensor(index))
    assert_attends(result, q[:3], k[index], v[index], [150] * 3)


@gpu
@pytest.mark.parametrize(("seqlen_q", "num_splits"), [(1, 0), (1, 4), (40, 0)])
def test_a_graph_serves_the_lengths_and_pages_of_its_replay(seqlen_q, num_splits):
    q, k, v = problem(seqlen_q=seqlen_q, room=700)
    *cache, table = paged(k, v, 16)
    other = table[::-1].copy()
    copies = [tensor(array) for array in (q, *cache)]
    places, lengths = tensor(table), tensor(int32([3, 700, 0, 50]))

    def call():
        return attune.flash_attn_with_kvcache(
            *copies,
            cache_seqlens=lengths,
            block_table=places,
            num_splits=num_splits,
            return_softmax_lse=True,
        )

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    graph.replay()
    assert_attends(arrays_of(result), q, k, v, [3, 700, 0, 50])
    lengths.copy_(tensor(int32([650, 1, 699, 0])))
    places.copy_(tensor(other))
    graph.replay()
    assert_attends(arrays_of(result), q, k[::-1], v[::-1], [650, 1, 699, 0])


@gpu
@pytest.mark.parametrize("page_size", [None, 16])
def test_a_graph_appends_many_keys_behind_the_lengths_and_pads_of_its_replay(page_size):
    q, k, v = problem(seqlen_q=40, room=700)
    rows = np.arange(4)[:, None], int32([0, 30, 300, 9])[:, None] + np.arange(40)
    cache, where = (k.copy(), v.copy()), {}
    for array in cache:
        array[rows] = np.nan
    if page_size is not None:
        *cache, table = paged(*cache, page_size)
        where["block_table"] = tensor(table)
    copies = [tensor(array) for array in (q, *cache)]
    lengths, pads = (tensor(int32(numbers)) for numbers in ([0, 5, 65, 660], [0, 5, 10, 400]))
    new = [tensor(x[rows]) for x in (k, v)]

    def call():
        return attune.flash_attn_with_kvcache(
            *(*copies, *new),
            cache_seqlens=lengths,
            cache_leftpad=pads,
            causal=True,
            return_softmax_lse=True,
            **where,
        )

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for copy, array in zip(copies[1:], cache):
        copy.copy_(tensor(array))
    lengths.copy_(tensor(int32([0, 30, 300, 9])))
    pads.copy_(tensor(int32([0, 0, 100, 9])))
    graph.replay()
    moved = [np.zeros_like(k), np.zeros_like(v)]
    for to, held in zip(moved, (k, v)):
        for sequence, pad in enumerate((0, 0, 100, 9)):
            to[sequence, : 700 - pad] = held[sequence, pad:]
    assert_attends(arrays_of(result), q, *moved, [40, 70, 240, 40], causal=True)


@gpu
def test_runs_on_the_current_stream():
    q, k, v = problem(room=700)
    copies = [tensor(array) for array in (q, k, v)]
    lengths = torch.zeros(len(q), dtype=torch.int32, device="cuda")
    attend(*copies, cache_seqlens=lengths)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        result = attune.flash_attn_with_kvcache(
            *copies, cache_seqlens=lengths + 600, return_softmax_lse=True
        )
    stream.synchronize()
    assert_attends(arrays_of(result), q, k, v, [600] * len(q))


@gpu
def test_a_thread_that_has_not_used_cuda():
    q, k, v = problem(room=700)
    copies = [tensor(array) for array in (q, k, v)]
    results = []
    thread = threading.Thread(target=lambda: results.append(attend(*copies)))
    thread.start()
    thread.join()
    assert_attends(results[0], q, k, v, [700] * len(q))


@gpu
def test_a_given_output_is_written_and_returned():
    q, k, v = problem()
    copies = [tensor(array) for array in (q, k, v)]
    wide = torch.full((4, 1, 4, 128), 7.0, dtype=torch.float16, device="cuda")
    out = wide[..., :64]
    returned, lse = attune.flash_attn_with_kvcache(*copies, out=out, return_softmax_lse=True)
    assert returned is out
    assert_attends(arrays_of((out.contiguous(), lse)), q, k, v, [150] * len(q))
    assert (wide[..., 64:] == 7).all()


@gpu
def test_wrong_tensors_are_named():
    q, k, v = (tensor(array) for array in problem())
    lengths = tensor(int32(LENGTHS))
    with pytest.raises(
        ValueError, match="cache_seqlens is on the device cpu; it must be on cuda:0"
    ):
        attune.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths.cpu())
    with pytest.raises(TypeError, match="block_table has dtype torch.int64; it must be int32"):
        attune.flash_attn_with_kvcache(q, k, v, block_table=lengths[:, None].long())
    with pytest.raises(ValueError, match="o.stride_batch is 0; rows that are written must not"):
        attune.flash_attn_with_kvcache(q, k, v, out=q[:1].expand(4, -1, -1, -1))
    with pytest.raises(NotImplementedError, match="v_cache requires a gradient"):
        attune.flash_attn_with_kvcache(q, k, v.requires_grad_())
