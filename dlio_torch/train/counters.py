"""I/O counters of a rank and its loader workers, from the kernel."""

from __future__ import annotations

import psutil

from dlio_torch.iotrace.recorder.io_counters import IoCounters, io_counters


def tree_counters(*, begins: bool = False) -> IoCounters | None:
    """Returns the sum of the counters of this process and its descendants; ``None`` if the kernel has no counters.

    When a process has ended, the kernel adds its counters to its parent's, so the sum over the living processes
    includes loader workers that have ended.

    Args:
        begins: whether a measurement begins here.  To list its children this process reads a file of each process of
            the machine.  Its own counters are read after that at the begin of a measurement and before it at the end,
            so that the difference does not include these reads.
    """
    total = None if begins else io_counters()
    below = [io_counters(child.pid) for child in psutil.Process().children(recursive=True)]
    total = io_counters() if begins else total
    for counters in below:
        if counters is None or total is None:
            return None
        total = total + counters
    return total
