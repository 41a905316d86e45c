"""The pages of a K/V cache: whose each one is, and which hold tokens that another sequence may share."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence


def page_hash(before: bytes, tokens: Sequence[int]) -> bytes:
    """Names a full page by its tokens and, through the hash of the page before it, by all tokens before them. At 128
    bits no two pages are taken for one another."""
    return hashlib.blake2b(before + array("i", tokens).tobytes(), digest_size=16).digest()


class Pages:
    """Pages with counts of who holds them.

    One that nobody holds keeps its tokens, and can still be found, until it is needed for others: those that were
    released first go first.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self._holders = [0] * count
        self._hashes: list[bytes | None] = [None] * count
        self._found: dict[bytes, int] = {}
        self._free = dict.fromkeys(range(count))  # in the order in which they are taken

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def needed(self, tokens: int) -> int:
        """Pages that so many tokens fill or begin."""
        return -(-tokens // self.size)

    def find(self, hashes: Sequence[bytes]) -> list[int]:
        """The pages of the longest known prefix, which the caller now holds, too."""
        pages = []
        for one in hashes:
            page = self._found.get(one)
            if page is None:
                break
            self._free.pop(page, None)
            self._holders[page] += 1
            pages.append(page)
        return pages

    def take(self) -> int:
        """A page that nobody held. There must be one."""
        page = next(iter(self._free))
        del self._free[page]
        known = self._hashes[page]
        if known is not None:
            del self._found[known]
            self._hashes[page] = None
        self._holders[page] = 1
        return page

    def publish(self, page: int, known: bytes) -> None:
        """Has a full page be found by its hash. Where two sequences computed the same tokens, the first one's is."""
        if self._found.setdefault(known, page) == page:
            self._hashes[page] = known

    def release(self, pages: Sequence[int]) -> None:
        """Gives a sequence's pages back. Its last ones are taken first: fewer others begin with all of it."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page] == 0:
                self._free[page] = None
