"""Chunked prefill beside decoding in one call: sequences in pages, of one query, of many, of none."""

import numpy as np
import pytest
from cached import int32
from conftest import assert_attends, random_array

import attune

LENGTHS_Q = (1, 0, 40, 1, 17, 1, 33)
LENGTHS_K = (130, 70, 90, 1, 17, 0, 20)  # the last has queries that see no key
SHARED = 64  # keys, with which the third begins as the first does


def starts(lengths):
    return int32(np.cumsum((0, *lengths)))


def keys_of(dtype, heads_kv, head_dim):
    """Keys and values of each sequence."""
    result = []
    for seed, length in enumerate(LENGTHS_K):
        shape = (length, heads_kv, head_dim)
        result.append([random_array(shape, dtype, 10 * seed + i) for i in (1, 2)])
    for later, earlier in zip(result[2], result[0]):
        later[:SHARED] = earlier[:SHARED]
    return result


def in_pages(sequences, page_size):
    """The same in shuffled pages, the shared keys once where they fill pages; NaN where there is no key, and in the
    table -1 where there is no page."""
    width = -(-max(LENGTHS_K) // page_size) + 1
    table = np.full((len(sequences), width), -1, np.int32)
    count = sum(-(-length // page_size) for length in LENGTHS_K) + 3
    free = iter(np.random.default_rng(6).permutation(count))
    shape = (count, page_size, *sequences[0][0].shape[1:])
    pools = [np.full(shape, np.nan, sequences[0][0].dtype) for _ in "kv"]
    for index, arrays in enumerate(sequences):
        for block in range(-(-LENGTHS_K[index] // page_size)):
            rows = slice(block * page_size, (block + 1) * page_size)
            shares = index == 2 and rows.stop <= SHARED
            table[index, block] = table[0, block] if shares else next(free)
            for pool, array in zip(pools, arrays):
                pool[table[index, block], : len(array[rows])] = array[rows]
    return *pools, table


def assert_each_attends(out, lse, q, sequences, **options):
    at = starts(LENGTHS_Q)
    for index, (keys, values) in enumerate(sequences):
        rows = slice(at[index], at[index + 1])
        if LENGTHS_Q[index] > 0:
            arrays = (q[rows][None], keys[None], values[None])
            assert_attends(out[rows][None], *arrays, lse[:, rows][None], **options)


@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
@pytest.mark.parametrize(
    ("sizes", "options", "asked"),
    [
        ({}, {"causal": True}, {"causal": True}),
        ({"heads_kv": 1}, {}, {}),
        ({"head_dim": 40}, {"window_size": (20, 3)}, {"window": (20, 3)}),
        ({}, {"causal": True, "softcap": 0.7}, {"causal": True, "softcap": 0.7}),
    ],
    ids=["causal", "full", "window", "softcap"],
)
def test_every_sequence_attends_to_its_pages(page_size, sizes, options, asked):
    sizes = {"heads_kv": 2, "head_dim": 64} | sizes
    sequences = keys_of("float16", **sizes)
    q = random_array((sum(LENGTHS_Q), 4, sizes["head_dim"]), "float16", 0)
    k_pages, v_pages, table = in_pages(sequences, page_size)
    where = (starts(LENGTHS_Q), None, max(LENGTHS_Q), max(LENGTHS_K))
    lengths = int32(LENGTHS_K)
    out, lse, _ = attune.flash_attn_varlen_func(
        *(q, k_pages, v_pages, *where),
        seqused_k=lengths,
        block_table=table,
        return_attn_probs=True,
        **options,
    )
    assert_each_attends(out, lse, q, sequences, **asked)
    cached, cached_lse = attune.flash_attn_with_kvcache(
        *(q, k_pages, v_pages),
        cache_seqlens=lengths,
        block_table=table,
        cu_seqlens_q=where[0],
        max_seqlen_q=max(LENGTHS_Q),
        return_softmax_lse=True,
        **options,
    )
    assert cached.tobytes() == out.tobytes()
    assert cached_lse.tobytes() == lse.tobytes()


def test_of_bfloat16(dtype):
    sequences = keys_of(dtype, 2, 64)
    q = random_array((sum(LENGTHS_Q), 4, 64), dtype, 0)
    k_pages, v_pages, table = in_pages(sequences, 16)
    out, lse, _ = attune.flash_attn_varlen_func(
        *(q, k_pages, v_pages, starts(LENGTHS_Q), None, max(LENGTHS_Q), max(LENGTHS_K)),
        seqused_k=int32(LENGTHS_K),
        block_table=table,
        causal=True,
        return_attn_probs=True,
    )
    assert_each_attends(out, lse, q, sequences, causal=True)


@pytest.mark.parametrize("sinks", [None, "float32", "float16"])
def test_sequences_of_few_queries_beside_a_long_one_are_as_if_alone(sinks):
    lengths_q = (1,) * 8 + (150, 9, 8, 0) + (2,) * 4
    lengths_k = tuple(max(length, 37 * place % 90) for place, length in enumerate(lengths_q))
    at_q, at_k = starts(lengths_q), starts(lengths_k)
    q = random_array((at_q[-1], 4, 64), "float16", 0)
    k, v = (random_array((at_k[-1], 2, 64), "float16", seed) for seed in (1, 2))
    options = {"causal": True, "return_attn_probs": True}
    if sinks:
        options["learnable_sink"] = np.array([0.5, -1, 2, 0], sinks)
    out, lse, _ = attune.flash_attn_varlen_func(
        *(q, k, v, at_q, at_k, max(lengths_q), max(lengths_k)), **options
    )
    for index in (0, 7, 8, 9, 10, 15):
        own_q = slice(at_q[index], at_q[index + 1])
        own_k = slice(at_k[index], at_k[index + 1])
        alone, alone_lse, _ = attune.flash_attn_func(
            *(q[own_q][None], k[own_k][None], v[own_k][None]), **options
        )
        np.testing.assert_allclose(out[own_q], alone[0], rtol=1e-2, atol=2e-3)
        np.testing.assert_allclose(lse[:, own_q], alone_lse[0], rtol=1e-5, atol=1e-5)
