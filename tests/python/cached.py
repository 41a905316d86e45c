"""What the tests of attention to a cache share: problems in both layouts, and their reference."""

import numpy as np
from conftest import random_array

LENGTHS = (0, 1, 65, 150)


def problem(dtype="float16", seqlen_q=1, heads_q=4, heads_kv=2, head_dim=64, room=150):
    """q, and k and v of each sequence, (batch, room, heads_kv, head_dim)."""
    batch = len(LENGTHS)
    q = random_array((batch, seqlen_q, heads_q, head_dim), dtype, 1)
    k, v = (random_array((batch, room, heads_kv, head_dim), dtype, seed) for seed in (2, 3))
    return q, k, v


def int32(values):
    return np.array(values, np.int32)


def in_wider_rows(*arrays):
    """The same in rows whose strides are multiples of 8, with NaN in the columns beyond head_dim."""
    wide = []
    for array in arrays:
        head_dim = array.shape[-1]
        rows = np.full((*array.shape[:-1], -(-head_dim // 8) * 8), np.nan, array.dtype)
        rows[..., :head_dim] = array
        wide.append(rows[..., :head_dim])
    return wide


def paged(k, v, page_size):
    """The same keys and values in shuffled pages, NaN in those of no sequence; and their table."""
    batch, room = k.shape[:2]
    blocks = -(-room // page_size)
    pages = np.random.default_rng(4).permutation(batch * blocks + 2)
    table = int32(pages[: batch * blocks]).reshape(batch, blocks)
    pools = []
    for array in (k, v):
        pool = np.full((len(pages), page_size, *array.shape[2:]), np.nan, array.dtype)
        for sequence, places in enumerate(table):
            for block, page in enumerate(places):
                tokens = array[sequence, block * page_size : (block + 1) * page_size]
                pool[page, : len(tokens)] = tokens
        pools.append(pool)
    return *pools, table


def reference(q, k, v, lengths, causal=False, window=(-1, -1), scale=None, storage=np.float64):
    """Output and log-sum-exp; every intermediate result is rounded to `storage`."""
    batch, seqlen_q, heads_q, head_dim = q.shape
    out = np.zeros(q.shape)
    lse = np.full((batch, heads_q, seqlen_q), -np.inf)
    scale = head_dim**-0.5 if scale is None else scale

    def rounded(x):
        return x.astype(storage).astype(np.float64)

    for sequence, length in enumerate(lengths):
        position = np.arange(seqlen_q)[:, None] + length - seqlen_q
        key = np.arange(length)
        seen = np.ones((seqlen_q, length), bool)
        if window[0] >= 0:
            seen &= key >= position - window[0]
        if causal or window[1] >= 0:
            seen &= key <= position + (0 if causal else window[1])
        for head in range(heads_q):
            of = head // (heads_q // k.shape[2])
            keys, values = (x[sequence, :length, of].astype(np.float64) for x in (k, v))
            scores = rounded(scale * (q[sequence, :, head].astype(np.float64) @ keys.T))
            for row in np.flatnonzero(seen.any(axis=1)):
                visible = scores[row, seen[row]]
                weights = rounded(np.exp(visible - visible.max()))
                total = weights.sum()
                out[sequence, row, head] = rounded(rounded(weights / total) @ values[seen[row]])
                lse[sequence, head, row] = visible.max() + np.log(total)
    return out, lse


def assert_attends(result, q, k, v, lengths, **options):
    """(out, lse): at most twice the error of the same formula in the storage type."""
    out, lse = result
    exact, exact_lse = reference(q, k, v, lengths, **options)
    naive, _ = reference(q, k, v, lengths, storage=q.dtype, **options)
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    assert np.abs(out.astype(np.float64) - exact).max() <= 2 * np.abs(naive - exact).max()
    assert lse.dtype == np.float32
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)
