"""How far a suite is, on standard error: a bar on a terminal, else a line for each case."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def progress(suite: str, total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function that is told the name of each of `total` cases when it begins."""
    begun = 0
    bar = _bar(suite, total)

    def tell(case: str) -> None:
        nonlocal begun
        if bar is None:
            print(f"[{begun + 1}/{total}] {suite}: {case}", file=sys.stderr, flush=True)
        else:
            bar.update(1 if begun else 0)
            bar.set_postfix_str(case)
        begun += 1

    try:
        yield tell
    finally:
        if bar is not None:
            bar.close()


def _bar(suite: str, total: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    # It leaves nothing behind: the table of the suite takes its place.
    return tqdm(total=total, desc=suite, unit="case", leave=False, dynamic_ncols=True)
