"""Bytes and calls of a rank and its loader workers, as the kernel counts them."""

from __future__ import annotations

import psutil

from dlio_torch.environment.io import IoCounters, io_counters


def tree_counters(*, begins: bool = False) -> IoCounters | None:
    """Counters of this process and all below it; ``None`` where the kernel does not tell.

    When a process is waited for, the kernel adds its counters to its parent's, so the sum over the
    living tree loses nothing of loader workers that have ended.

    Args:
        begins: whether what follows is to be counted rather than what was before.  To find its children this
            process reads a file of each process of the machine; its own counters are read on the other side of
            that, so that a difference of two calls holds none of it.
    """
    total = None if begins else io_counters()
    below = [io_counters(child.pid) for child in psutil.Process().children(recursive=True)]
    total = io_counters() if begins else total
    for counters in below:
        if counters is None or total is None:
            return None
        total = total + counters
    return total
