"""What the example engine promises of its pages and its scheduler. No kernel runs: test_examples.py has these."""

import random
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


@pytest.fixture
def parts(monkeypatch):
    """The modules pages and scheduler."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import engine.pages
    import engine.scheduler

    return engine.pages, engine.scheduler


def started(parts, pages=8, page_size=4, max_requests=4, max_tokens=16):
    """A scheduler of its own."""
    return parts[1].Scheduler(parts[0].Pages(pages, page_size), max_requests, max_tokens)


def stepped(scheduler, token=0):
    """The chunks of a step, as (request, start, end); those that give a token are given it."""
    chunks = scheduler.schedule()
    for chunk in chunks:
        if chunk.gives_token:
            chunk.request.tokens.append(token)
            if chunk.request.done:
                scheduler.finish(chunk.request)
    return [tuple(chunk) for chunk in chunks]


@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_what_a_step_reads_is_what_its_sequences_wrote(parts, page_size):
    for seed in range(60):
        simulate(parts, random.Random(seed), page_size)


def simulate(parts, draw, page_size):
    """Requests of few different tokens, so that many pages are alike. In the place of a key the cache holds all tokens
    up to its own, on which it depends."""
    most = 24
    count = parts[0].Pages(1, page_size).needed(most) + draw.randint(0, 12)
    scheduler = started(parts, count, page_size, draw.randint(1, 5), draw.randint(1, 20))
    coming = []
    for _ in range(12):
        prompt = draw.randint(1, most - 6)
        tokens = draw.choices(range(2), weights=(9, 1), k=prompt)
        coming.append(parts[1].Request(tokens, draw.randint(1, 6)))
    left = list(coming)
    cache = {}
    while left or scheduler.waiting or scheduler.running:
        for _ in range(min(len(left), draw.randint(0, 3))):
            scheduler.add(left.pop())
        busy = bool(scheduler.waiting or scheduler.running)
        chunks = scheduler.schedule()
        assert bool(chunks) == busy
        assert sum(end - start for _, start, end in chunks) <= scheduler.max_tokens
        assert len(scheduler.running) <= scheduler.max_requests

        def slot(request, place):
            return request.pages[place // page_size], place % page_size

        written = [slot(one, i) for one, start, end in chunks for i in range(start, end)]
        assert len(written) == len(set(written))
        for request, start, end in chunks:
            assert start < end
            assert len(request.pages) == scheduler.pages.needed(len(request.tokens))
            for i in range(start, end):
                cache[slot(request, i)] = request.tokens[: i + 1]
        for request in scheduler.running:
            for i in range(request.computed):
                assert cache[slot(request, i)] == request.tokens[: i + 1]
        for chunk in chunks:
            if chunk.gives_token:
                chunk.request.tokens.append(draw.randrange(2))
                if chunk.request.done:
                    scheduler.finish(chunk.request)
    assert all(request.done for request in coming)
    assert scheduler.pages.free == count


def test_a_prompt_longer_than_a_step_is_computed_beside_what_decodes(parts):
    scheduler = started(parts, max_tokens=6)
    first, second = parts[1].Request([1, 2, 3], 4), parts[1].Request([4] * 9, 1)
    scheduler.add(first)
    assert stepped(scheduler) == [(first, 0, 3)]
    scheduler.add(second)
    assert stepped(scheduler) == [(first, 3, 4), (second, 0, 5)]
    assert stepped(scheduler) == [(first, 4, 5), (second, 5, 9)]


def test_a_request_starts_after_the_full_pages_that_it_shares(parts):
    scheduler = started(parts)
    first = parts[1].Request([1, 2, 3, 4, 5, 6, 7, 8], 1)
    scheduler.add(first)
    assert stepped(scheduler) == [(first, 0, 8)]
    assert scheduler.pages.free == 8
    # Its last page is full of the same tokens, but its last token is to give one.
    second = parts[1].Request([1, 2, 3, 4, 5, 6, 7, 8], 1)
    # The same tokens after others are other keys.
    third = parts[1].Request([5, 6, 7, 8, 9], 1)
    scheduler.add(second)
    scheduler.add(third)
    assert stepped(scheduler) == [(second, 4, 8), (third, 0, 5)]
    assert (second.shared, third.shared) == (4, 0)
    assert first.pages[0] == second.pages[0]


def test_generated_tokens_are_shared_too(parts):
    scheduler = started(parts)
    first = parts[1].Request([1, 2], 3)
    scheduler.add(first)
    for _ in range(3):
        stepped(scheduler, 3)
    second = parts[1].Request([1, 2, 3, 3, 3, 4], 1)
    scheduler.add(second)
    assert stepped(scheduler) == [(second, 4, 6)]


def test_requests_that_begin_alike_share_pages_in_the_same_step(parts):
    scheduler = started(parts)
    first, second = parts[1].Request([1] * 6, 2), parts[1].Request([1] * 7, 2)
    scheduler.add(first)
    scheduler.add(second)
    assert stepped(scheduler) == [(first, 0, 6), (second, 4, 7)]
    assert first.pages[0] == second.pages[0]


def test_a_request_waits_until_there_are_pages_for_it(parts):
    scheduler = started(parts, pages=4)
    first, second = parts[1].Request([1] * 6, 2), parts[1].Request([2] * 8, 1)
    scheduler.add(first)
    scheduler.add(second)
    assert stepped(scheduler) == [(first, 0, 6)]
    assert scheduler.pages.free == 2  # enough for its prompt, but not for a token after it
    assert stepped(scheduler) == [(first, 6, 7)]
    assert stepped(scheduler) == [(second, 0, 8)]


def test_the_last_to_come_makes_room_and_goes_on_later(parts):
    scheduler = started(parts, pages=4, max_requests=2)
    first, second = parts[1].Request([1] * 7, 6), parts[1].Request([2] * 7, 6)
    for request in (first, second, parts[1].Request([4], 1)):
        scheduler.add(request)
    assert stepped(scheduler, 3) == [(first, 0, 7), (second, 0, 7)]
    assert stepped(scheduler, 3) == [(first, 7, 8), (second, 7, 8)]
    assert stepped(scheduler, 3) == [(first, 8, 9)]
    assert scheduler.preemptions == 1
    while not first.done:
        stepped(scheduler, 3)
    # Its first page was not needed for others, and is found again.
    assert stepped(scheduler, 3)[0] == (second, 4, 9)


def test_what_nobody_holds_is_forgotten_in_the_order_of_its_release(parts):
    pages = parts[0].Pages(4, 1)
    a, b, c, d = (pages.take() for _ in range(4))
    for page, name in ((a, b"a"), (b, b"b"), (c, b"c"), (d, b"d")):
        pages.publish(page, name)
    pages.release([a, b])
    pages.release([c, d])
    assert (pages.take(), pages.take(), pages.take()) == (b, a, d)
    assert pages.find([b"b"]) == pages.find([b"a"]) == []
    assert pages.find([b"c", b"d"]) == [c]
    assert pages.free == 0


def test_a_request_that_could_never_run_is_refused(parts):
    scheduler = started(parts, pages=4)
    with pytest.raises(ValueError, match="needs 5 pages; the cache has 4"):
        scheduler.add(parts[1].Request([1] * 10, 7))
    for tokens, new_tokens in (([], 7), ([1], 0)):
        with pytest.raises(ValueError, match="at least one"):
            scheduler.add(parts[1].Request(tokens, new_tokens))
