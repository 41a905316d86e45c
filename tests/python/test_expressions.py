"""attune.attention: scores and masks as texts, and as Python functions that are traced into them."""

import inspect

import numpy as np
import pytest

import attune

SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], "float32")
DOCUMENTS = np.repeat(np.arange(4, dtype="int32"), 10)[None].repeat(2, 0)  # (batch, seqlen)


def problem(seed=1):
    random = np.random.default_rng(seed)
    q = random.standard_normal((2, 24, 4, 64)).astype("float16")
    k, v = random.standard_normal((2, 2, 40, 2, 64)).astype("float16")
    return q, k, v


def reference(q, k, v, score, mask):
    """In float64: score(s, q, p, k, h, b) and mask(q, p, k, h, b) of index arrays."""
    batch, rows, heads, dim = q.shape
    keys = k.shape[1]
    b, h, i, j = np.ix_(range(batch), range(heads), range(rows), range(keys))
    p = i + keys - rows
    k, v = (np.repeat(x.astype("float64"), heads // x.shape[2], 2) for x in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q.astype("float64"), k) / np.sqrt(dim)
    s = np.where(np.broadcast_to(mask(i, p, j, h, b), s.shape), score(s, i, p, j, h, b), -np.inf)
    largest = np.maximum(s.max(-1, keepdims=True), -1e300)
    weights = np.exp(s - largest)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (largest + np.log(total))[..., 0]
    out = np.einsum("bhij,bjhd->bihd", weights / np.maximum(total, 1e-300), v)
    return out, np.where(total[..., 0] > 0, lse, -np.inf)


def check(found, expected):
    out, lse = found
    np.testing.assert_allclose(out.astype("float64"), expected[0], atol=4e-3)
    np.testing.assert_allclose(lse, expected[1], atol=1e-3)


ALIBI = {
    "text": "s + slope[h] * (k - p)",
    "where": "s + slope[h] * (k - p) where slope: fp32[head]",
    "function": lambda s, slope, h, k, p: s + slope[h] * (k - p),
}
DOCUMENT = {
    "text": "k <= p and doc[b, p] == doc[b, k]",
    "function": lambda k, p, doc, b: (k <= p) & (doc[b, p] == doc[b, k]),
}


@pytest.mark.parametrize("form", ALIBI)
def test_slopes_are_added_however_they_are_said(form):
    q, k, v = problem()
    found = attune.attention(
        q, k, v, score=ALIBI[form], causal=True, params={"slope": SLOPES}, return_lse=True
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, i, p, j, h, b: s + SLOPES[h] * (j - p),
        lambda i, p, j, h, b: j <= p,
    )
    check(found, expected)


@pytest.mark.parametrize("form", DOCUMENT)
def test_queries_see_their_own_documents(form):
    q, k, v = problem(2)
    found = attune.attention(
        q, k, v, mask=DOCUMENT[form], params={"doc": DOCUMENTS}, return_lse=True
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, *_: s,
        lambda i, p, j, h, b: (j <= p) & (DOCUMENTS[b, p] == DOCUMENTS[b, j]),
    )
    check(found, expected)


@pytest.mark.parametrize("kind", ["dense", "ragged", "cache"])
def test_blocks_of_other_documents_are_not_read(kind):
    random = np.random.default_rng(7)
    q = random.standard_normal((1, 40, 2, 64)).astype("float16")
    k, v = random.standard_normal((2, 1, 600, 1, 64)).astype("float16")
    k[:, :512] = v[:, :512] = np.nan  # of a document that no query is of
    mask, params = DOCUMENT["text"], {"doc": np.repeat([0, 1], [512, 88])[None].astype("int32")}
    if kind == "dense":
        out = attune.attention(q, k, v, mask=mask, params=params)
    elif kind == "ragged":
        starts = {"cu_seqlens_q": np.array([0, 40], "int32"), "max_seqlen_q": 40}
        starts |= {"cu_seqlens_k": np.array([0, 600], "int32"), "max_seqlen_k": 600}
        out = attune.attention(q[0], k[0], v[0], mask=mask, params=params, **starts)[None]
    else:
        out = attune.attention(q, k, v, mask=mask, params=params, cache_seqlens=600)
    expected, _ = reference(q, k[:, 512:], v[:, 512:], lambda s, *_: s, lambda i, p, j, h, b: j <= p)
    np.testing.assert_allclose(out.astype("float64"), expected, atol=4e-3)


def test_a_query_that_sees_nothing_gives_zeros_and_an_lse_of_minus_infinity():
    q, k, v = problem(3)
    out, lse = attune.attention(q, k, v, mask="k < q - 10", return_lse=True)
    assert not out[:, :10].any() and np.isneginf(lse[:, :, :10]).all()
    assert np.isfinite(lse[:, :, 12:]).all()


HIDDEN = np.where(np.arange(40) % 3 == 1, -np.inf, np.linspace(-1, 1, 40)).astype("float32")


@pytest.mark.parametrize("heads_kv", [1, 2])
@pytest.mark.parametrize("how", ["in the text", "of an array", "in the arithmetic"])
@pytest.mark.parametrize("kind", ["dense", "ragged", "cache", "cache in parts", "few queries"])
def test_a_score_of_minus_infinity_is_a_key_that_is_not_seen(kind, how, heads_kv):
    """Also of all keys of a row, of a whole block and of all that came before."""
    random = np.random.default_rng(7)
    rows, keys = (1 if kind == "few queries" else 16 if "cache" in kind else 200), 300
    q = random.standard_normal((1, rows, 4, 64)).astype("float16")
    k, v = random.standard_normal((2, 1, keys, heads_kv, 64)).astype("float16")
    i, h = np.arange(rows), np.arange(4)
    seen = np.broadcast_to((np.arange(keys) >= 140) & (np.arange(keys) % 3 != 1), (4, rows, keys))
    seen = seen & ((i % 7 != 2)[:, None] & ((h != 1)[:, None, None] | (i < rows // 2)[:, None]))
    named = {
        "in the text": {"score": "select(k >= 140 and k % 3 != 1 and q % 7 != 2 and "
                                 f"(h != 1 or q < {rows // 2}), s, -inf)"},
        "of an array": {
            "score": "s + bias[h, q, k]",
            "params": {"bias": np.where(seen, 0, -np.inf).astype("float32")},
        },
        "in the arithmetic": {
            "score": "s + log2(real(seen[h, q, k]))",
            "params": {"seen": seen.astype("int32")},
        },
    }[how]  # fmt: skip
    if kind == "ragged":
        lengths = {"cu_seqlens_q": np.array([0, rows], "int32"), "max_seqlen_q": rows}
        lengths |= {"cu_seqlens_k": np.array([0, keys], "int32"), "max_seqlen_k": keys}
        out, lse = attune.attention(q[0], k[0], v[0], return_lse=True, **lengths, **named)
        out, lse = out[None], lse[None]
    elif "cache" in kind:
        named["num_splits"] = 3 if kind == "cache in parts" else 1
        out, lse = attune.attention(q, k, v, return_lse=True, cache_seqlens=keys, **named)
    else:
        out, lse = attune.attention(q, k, v, return_lse=True, **named)
    expected = reference(q, k, v, lambda s, *_: s, lambda *_: seen)
    unseen = ~seen.any(-1)
    assert unseen.any() and np.isneginf(lse[0][unseen]).all()
    assert not out[0].transpose(1, 0, 2)[unseen].any()
    check((out, lse), expected)


def test_far_down_a_slope_nan_is_no_less_than_near():
    """Blocks whose weights are all 0 are passed over; those with NaN are not."""
    q, k, v = np.random.default_rng(8).standard_normal((3, 1, 700, 2, 64)).astype("float16")
    k[0, 5] = np.nan
    _, lse = attune.attention(q, k, v, causal=True, score="s + 0.5 * (k - p)", return_lse=True)
    assert np.isfinite(lse[0, :, :5]).all()
    assert np.isnan(lse[0, :, 5:]).all()


@pytest.mark.parametrize("score", ["select(h % 2 == 0, s, -inf)", "s + offset[h]"])
def test_a_slope_beside_a_score_of_minus_infinity_hides_the_row(score):
    q, k, v = np.random.default_rng(9).standard_normal((3, 1, 300, 4, 64)).astype("float16")
    offset = np.array([0, -np.inf, 1, -np.inf], "float32")
    params = {"offset": offset} if "offset" in score else None
    out, lse = attune.attention(
        q, k, v, causal=True, score=f"{score} + 0.25 * (k - p)", params=params, return_lse=True
    )
    assert np.isfinite(lse[0, ::2]).all()
    assert np.isneginf(lse[0, 1::2]).all()
    assert not out[0, :, 1::2].any()


def test_what_is_wrong_is_named():
    q, k, v = problem()
    with pytest.raises(TypeError, match="mask is a ndarray; it must be a text or a function. An array"):
        attune.attention(q, k, v, mask=np.ones((24, 40), bool))
    with pytest.raises(ValueError, match=r"score:1:5: there is no name slop; did you mean slope\?"):
        attune.attention(q, k, v, score="s + slop[h] + slope[h]", params={"slope": SLOPES})
    with pytest.raises(ValueError, match="params: slope is missing"):
        attune.attention(q, k, v, score="s + slope[h] where slope: fp32[head]")
    with pytest.raises(ValueError, match="extent 0 of slope is 3; it must be 4, its head"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": SLOPES[:3]})
    with pytest.raises(TypeError, match="float32 or int32"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": SLOPES.astype("float64")})
    with pytest.raises(ValueError, match="another type"):
        attune.attention(
            q, k, v, score="s + slope[h] where slope: int32[head]", params={"slope": SLOPES}
        )
    with pytest.raises(ValueError, match="the mask is an integer; it must be a boolean"):
        attune.attention(q, k, v, mask="k + p")
    with pytest.raises(ValueError, match="mask:1:3: '\u2264' stands where the expression ends"):
        attune.attention(q, k, v, mask="k \u2264 p")
    with pytest.raises(ValueError, match="mask:2:3: there is no name foo"):
        attune.attention(q, k, v, mask="k <= p and\n  foo < 1")
    with pytest.raises(ValueError, match="contiguous"):
        attune.attention(q, k, v, score="s + slope[h]", params={"slope": np.repeat(SLOPES, 2)[::2]})
    with pytest.raises(TypeError, match="other is a list"):
        attune.attention(q, k, v, mask="k <= p", params={"other": [1.0]})


def test_a_bare_index_says_what_a_dimension_is_counted_by():
    q, k, v = problem(4)
    bias = np.random.default_rng(5).standard_normal((4, 9)).astype("float32")
    found = attune.attention(
        q,
        k,
        v,
        score="s + bias[h, min(max(p - k, 0), 8)]",
        params={"bias": bias},
        return_lse=True,
    )
    expected = reference(
        q,
        k,
        v,
        lambda s, i, p, j, h, b: s + bias[h, np.clip(p - j, 0, 8)],
        lambda i, p, j, h, b: j >= 0,
    )
    check(found, expected)


@pytest.mark.parametrize("pad", [1, 3, 70])
def test_keys_before_the_first_of_a_padded_cache_have_no_position(pad):
    """Nor are blocks of keys that begin among them judged by positions below 0."""
    (q, k, v), *_ = drawn((4,), (130,))
    mask = "100 // (2 * k + 1) > 5 or 100 % (k + 1) > 3"
    padded = [np.concatenate([np.full_like(x[:1], np.nan).repeat(pad, 0), x]) for x in (k, v)]
    found = attune.attention(
        q[None],
        *(x[None] for x in padded),
        mask=mask,
        cache_seqlens=np.array([130 + pad], "int32"),
        cache_leftpad=np.array([pad], "int32"),
        return_lse=True,
    )

    def seen(k):
        return (100 // (2 * k + 1) > 5) | (100 % (k + 1) > 3)

    check([x[0] for x in found], of_sequence(0, q, k, v, None, seen))


# One sequence's attention, whatever the batch that it came in: functions that are traced, and evaluated on index arrays.

TREE = np.array(
    [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]], "int32"
)  # who sees whom of the last tokens

EVERYWHERE = {
    "slopes of each sequence": (
        lambda s, slope, b, h, k, p: s + slope[b, h] * (k - p),
        lambda k, p: k <= p,
    ),
    "documents": (None, lambda k, p, b, doc: (k <= p) & (doc[b, p] == doc[b, k])),
    "prefix and heads": (
        lambda s, hk, k: s - 0.01 * hk * (k % 3),
        lambda k, p, b, prefix, q, h: ((k <= p) | (k < prefix[b])) & (k % 7 != h + q % 2),
    ),
}
PARAMS = {
    "slope": np.random.default_rng(7).random((3, 4)).astype("float32"),
    "doc": (np.arange(64, dtype="int32")[None] // np.array([[5], [9], [64]], "int32")),
    "prefix": np.array([3, 0, 20], "int32"),
}


def value(function, indices):
    """Of a function on index arrays."""
    return function(*((PARAMS | indices)[name] for name in inspect.signature(function).parameters))


def of_sequence(b, q, k, v, score, mask):
    """(out, lse) of the rows of one sequence in float64; q is (rows, heads, head_dim)."""
    rows, keys, heads = len(q), len(k), q.shape[1]
    ratio = heads // k.shape[1]
    h, i, j = np.ix_(range(heads), range(rows), range(keys))
    at = {"q": i, "p": i + keys - rows, "k": j, "h": h, "hk": h // ratio, "b": np.full_like(h, b)}
    k, v = (np.repeat(x.astype("float64"), ratio, 1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q.astype("float64"), k) / np.sqrt(q.shape[2])
    if score is not None:
        s = value(score, at | {"s": s})
    s = np.where(np.broadcast_to(value(mask, at), s.shape), s, -np.inf)
    top = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), -1e300)
    weights = np.exp(s - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, top + np.log(total), -np.inf)[..., 0]
    return np.einsum("hij,jhd->ihd", weights / np.maximum(total, 1e-300), v), lse


def drawn(lengths_q, lengths_k, seed=11):
    """q, k and v of each sequence."""
    random = np.random.default_rng(seed)
    return [
        [
            random.standard_normal((n, heads, 64)).astype("float16")
            for n, heads in ((i, 4), (j, 2), (j, 2))
        ]
        for i, j in zip(lengths_q, lengths_k)
    ]


def expected_of(sequences, which):
    return [of_sequence(b, *one, *EVERYWHERE[which]) for b, one in enumerate(sequences)]


def expression_arguments(which):
    score, mask = EVERYWHERE[which]
    return {"score": score, "mask": mask, "params": PARAMS, "return_lse": True}


def starts_of(lengths):
    return np.cumsum([0, *lengths]).astype("int32")


def in_pages(sequences, page_size, pages_each):
    """Keys, values and the table of pages in another order, the last of each filled up with NaN."""
    caches = np.full((2, len(sequences) * pages_each, page_size, 2, 64), np.nan, "float16")
    table = np.arange(len(sequences) * pages_each, dtype="int32")[::-1].reshape(-1, pages_each)
    for row, (_, *pair) in zip(table, sequences):
        for cache, one in zip(caches, pair):
            for i in range(len(one)):
                cache[row[i // page_size], i % page_size] = one[i]
    return *caches, np.ascontiguousarray(table)


each_expression = pytest.mark.parametrize("which", EVERYWHERE)
LENGTHS_K = (33, 50, 64)


@each_expression
def test_the_same_expression_in_a_dense_batch(which):
    sequences = drawn((20,) * 3, (50,) * 3)
    q, k, v = (np.stack(one) for one in zip(*sequences))
    out, lse = attune.attention(q, k, v, **expression_arguments(which))
    for b, expected in enumerate(expected_of(sequences, which)):
        check((out[b], lse[b]), expected)


@each_expression
@pytest.mark.parametrize("lengths_q", [(20, 1, 40), (3, 8, 1)], ids=["prefill", "few queries"])
@pytest.mark.parametrize("paged", [False, True])
def test_the_same_expression_in_a_ragged_batch(which, lengths_q, paged):
    sequences = drawn(lengths_q, LENGTHS_K)
    starts = starts_of(lengths_q)
    q, k, v = (np.concatenate(one) for one in zip(*sequences))
    lengths = {
        "max_seqlen_q": max(lengths_q),
        "max_seqlen_k": 64,
        "cu_seqlens_k": starts_of(LENGTHS_K),
    }
    if paged:
        k, v, lengths["block_table"] = in_pages(sequences, 16, 4)
    out, lse = attune.attention(
        q, k, v, cu_seqlens_q=starts, **lengths, **expression_arguments(which)
    )
    for b, expected in enumerate(expected_of(sequences, which)):
        rows = slice(starts[b], starts[b + 1])
        check((out[rows], lse[:, rows]), expected)


@each_expression
def test_the_same_expression_where_a_part_of_the_rows_is_used(which):
    sequences = drawn((20, 1, 40), LENGTHS_K)
    used = [[q[: len(q) // 2], k[:-9], v[:-9]] for q, k, v in sequences]
    starts = starts_of((20, 1, 40))
    q, k, v = (np.concatenate(one) for one in zip(*sequences))
    out, lse = attune.attention(
        q,
        k,
        v,
        cu_seqlens_q=starts,
        cu_seqlens_k=starts_of(LENGTHS_K),
        max_seqlen_q=40,
        max_seqlen_k=64,
        seqused_q=np.array([len(one[0]) for one in used], "int32"),
        seqused_k=np.array([len(one[1]) for one in used], "int32"),
        **expression_arguments(which),
    )
    for b, expected in enumerate(expected_of(used, which)):
        rows = slice(starts[b], starts[b] + len(used[b][0]))
        check((out[rows], lse[:, rows]), expected)


@each_expression
@pytest.mark.parametrize("splits", [0, 1, 3])
@pytest.mark.parametrize("paged", [False, True])
def test_the_same_expression_in_a_cache(which, splits, paged):
    sequences = drawn((4,) * 3, LENGTHS_K)
    k, v, table = in_pages(sequences, 16, 4) if paged else in_pages(sequences, 64, 1)
    placed = {"block_table": table} if paged else {"cache_batch_idx": table[:, 0].copy()}
    out, lse = attune.attention(
        np.stack([one[0] for one in sequences]),
        k,
        v,
        cache_seqlens=np.array(LENGTHS_K, "int32"),
        num_splits=splits,
        **placed,
        **expression_arguments(which),
    )
    for b, expected in enumerate(expected_of(sequences, which)):
        check((out[b], lse[b]), expected)


@each_expression
def test_the_same_expression_where_keys_are_appended(which):
    sequences = drawn((4,) * 3, LENGTHS_K)
    k, v, table = in_pages([(q, k[:-4], v[:-4]) for q, k, v in sequences], 16, 4)
    q, k_new, v_new = (
        np.stack(one) for one in zip(*((q, k[-4:], v[-4:]) for q, k, v in sequences))
    )
    out, lse = attune.attention(
        q,
        k,
        v,
        k_new=k_new,
        v_new=v_new,
        cache_seqlens=np.array(LENGTHS_K, "int32") - 4,
        block_table=table,
        **expression_arguments(which),
    )
    for b, expected in enumerate(expected_of(sequences, which)):
        check((out[b], lse[b]), expected)


@pytest.mark.parametrize("seen", [TREE, TREE.T], ids=["earlier", "later"])
def test_the_last_tokens_are_a_tree(seen):
    sequences = drawn((4,) * 3, LENGTHS_K)
    k, v, table = in_pages(sequences, 16, 4)
    tree = np.eye(4, dtype="int32") | seen
    out, lse = attune.attention(
        np.stack([one[0] for one in sequences]),
        k,
        v,
        mask="k <= p - q - 1 or tree[q, k - (p - q)] == 1",
        params={"tree": tree},
        cache_seqlens=np.array(LENGTHS_K, "int32"),
        block_table=table,
        num_splits=2,
        return_lse=True,
    )
    for b, one in enumerate(sequences):

        def mask(q, p, k):
            return (k < p - q) | (tree[q, np.clip(k - (p - q), 0, 3)] == 1)

        check((out[b], lse[b]), of_sequence(b, *one, None, mask))


def test_arguments_of_different_kinds_of_calls_are_refused_together():
    q, k, v = problem()
    ones = np.ones(2, "int32")
    with pytest.raises(ValueError, match="num_splits is given without cache_seqlens"):
        attune.attention(q, k, v, num_splits=2)
    with pytest.raises(ValueError, match="max_seqlen_k is given without cu_seqlens_q"):
        attune.attention(q, k, v, max_seqlen_k=40)
    with pytest.raises(ValueError, match="block_table is given without cu_seqlens_q"):
        attune.attention(q, k, v, block_table=ones[:, None])
    with pytest.raises(ValueError, match="seqused_k is given with cache_seqlens"):
        attune.attention(q, k, v, cache_seqlens=ones, seqused_k=ones)
    with pytest.raises(ValueError, match="k is given with cu_seqlens_q"):
        attune.attention(
            q[0],
            k,
            v,
            cache_seqlens=ones,
            cu_seqlens_q=np.array([0, 2, 24], "int32"),
            max_seqlen_q=16,
            k_new=k[:, :1],
            v_new=v[:, :1],
        )
