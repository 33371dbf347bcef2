"""Bytes and calls of a rank and its loader workers, as the kernel counts them."""

from __future__ import annotations

import psutil

from dlio_torch.environment import IoCounters, io_counters


def tree_counters() -> IoCounters | None:
    """Counters of this process and all below it; ``None`` where the kernel does not tell.

    When a process is waited for, the kernel adds its counters to its parent's, so the sum over the
    living tree loses nothing of loader workers that have ended.
    """
    total = io_counters()
    for child in psutil.Process().children(recursive=True) if total is not None else ():
        counters = io_counters(child.pid)
        if counters is None:
            return None
        assert total is not None
        total = total + counters
    return total
