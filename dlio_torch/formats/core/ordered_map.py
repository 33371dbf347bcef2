"""Ordered parallel map: threads compute results ahead of their use."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: Executor, function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Same as ``pool.map``, but holds at most ``ahead`` results; the caller itself computes a single item."""
    coming = iter(items)
    head = list(itertools.islice(coming, 2))
    if len(head) < 2:
        yield from map(function, head)
        return
    waiting: deque[Future[R]] = deque(pool.submit(function, item) for item in head)
    try:
        for item in coming:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
