"""Which tokens a step computes: continuous batching with chunked prefill."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from .pages import Pages, page_hash


@dataclass(eq=False)
class Request:
    """A prompt, and what became of it.

    Attributes:
        tokens: The prompt's, then those generated.
        new_tokens: How many to generate.
        prompt: Tokens of the prompt.
        computed: Tokens whose keys and values are in the cache, while it runs.
        pages: Where they are, in order.
        hashes: Of its full pages.
        shared: Tokens of the prompt that were in the cache when it was first let in; -1: it waits yet.
    """

    tokens: list[int]
    new_tokens: int
    prompt: int = field(init=False)
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    shared: int = -1

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.prompt + self.new_tokens


class Chunk(NamedTuple):
    """Tokens [start, end) of a request. The last one known gives the next one; decoding is a chunk of one token."""

    request: Request
    start: int
    end: int

    @property
    def gives_token(self) -> bool:
        return self.end == len(self.request.tokens)


class Scheduler:
    """Requests that wait, and those that run, in the order in which they came. One that is preempted computes its tokens
    anew, but for pages that are still found.

    Args:
        pages: Of the cache.
        max_requests: How many run at once.
        max_tokens: Of one step: what running requests decode, then chunks of prompts beside it.
    """

    def __init__(self, pages: Pages, max_requests: int, max_tokens: int) -> None:
        self.pages = pages
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = 0

    def add(self, request: Request) -> None:
        """Raises ValueError for one that could never run, even alone, or has nothing to begin with or to give."""
        if min(request.prompt, request.new_tokens) < 1:
            raise ValueError("a request has at least one token and asks for at least one")
        needed = self.pages.needed(request.prompt + request.new_tokens)
        if needed > self.pages.count:
            raise ValueError(f"the request needs {needed} pages; the cache has {self.pages.count}")
        self.waiting.append(request)

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step, which then count as computed. Empty only where no request is left."""
        chunks: list[Chunk] = []
        budget = self.max_tokens
        while len(chunks) < len(self.running) and budget > 0:
            request = self.running[len(chunks)]
            if self._room(request):
                chunks.append(self._advance(request, budget))
                budget -= chunks[-1].end - chunks[-1].start
        while budget > 0 and self._admit():
            chunks.append(self._advance(self.running[-1], budget))
            budget -= chunks[-1].end - chunks[-1].start
        return chunks

    def finish(self, request: Request) -> None:
        """Takes a running request off."""
        self.running.remove(request)
        self.pages.release(request.pages)

    def _room(self, request: Request) -> bool:
        """Sees to pages for all tokens of a running request: where none is left, those that came last are preempted and
        wait again. False where one of them is the request itself."""
        while len(request.pages) < self.pages.needed(len(request.tokens)):
            if self.pages.free == 0:
                last = self.running.pop()
                self.pages.release(last.pages)
                self.waiting.appendleft(last)
                self.preemptions += 1
                if last is request:
                    return False
            else:
                request.pages.append(self.pages.take())
        return True

    def _admit(self) -> bool:
        """Lets the first that waits run, if there are pages for its tokens and the next one. Of one that has just made
        room there are not."""
        if not self.waiting or len(self.running) == self.max_requests:
            return False
        request = self.waiting[0]
        # The last token is always computed: nothing else gives the next one.
        request.pages = self.pages.find(self._hashes(request, len(request.tokens) - 1))
        request.computed = len(request.pages) * self.pages.size
        if self.pages.needed(len(request.tokens) + 1) - len(request.pages) > self.pages.free:
            self.pages.release(request.pages)
            return False
        if request.shared < 0:
            request.shared = request.computed
        self.running.append(self.waiting.popleft())
        return self._room(request)

    def _advance(self, request: Request, budget: int) -> Chunk:
        start = request.computed
        request.computed = min(len(request.tokens), start + budget)
        hashes = self._hashes(request, request.computed)
        # Others may share these pages in this very step, as each layer stores all keys and values before it attends.
        for i in range(start // self.pages.size, len(hashes)):
            self.pages.publish(request.pages[i], hashes[i])
        return Chunk(request, start, request.computed)

    def _hashes(self, request: Request, tokens: int) -> list[bytes]:
        """Those of the pages that its first tokens fill."""
        size = self.pages.size
        while (len(request.hashes) + 1) * size <= tokens:
            at = len(request.hashes) * size
            before = request.hashes[-1] if request.hashes else b""
            request.hashes.append(page_hash(before, request.tokens[at : at + size]))
        return request.hashes[: tokens // size]
