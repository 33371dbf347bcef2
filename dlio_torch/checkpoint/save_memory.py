"""Memory that a rank's saves take, read from ``/proc`` by the trainer itself: no thread of its own disturbs a save."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

_PERIOD_NS = 20_000_000
_KIB = 1024
_RESIDENT = re.compile(rb"^(Vm\w+|Rss\w+):\s*(\d+) kB$", re.MULTILINE)


class SaveMemory:
    """Peak memory of saves above the level before them.

    A save in the background is sampled when the training goes on, and then after steps, at most every 20 ms.  Counted
    are the anonymous and shared pages of this process and the anonymous pages of the saver's other processes, whose
    shared pages belong to this process, too.  Pages of mapped files do not count, as the kernel can drop them.  What
    the training itself allocates meanwhile, for example for batches ahead, counts as well.

    A synchronous save leaves no time for samples.  Its peak is known if it raised the largest resident set that this
    process ever had (``VmHWM``).

    Args:
        processes: returns the ids of the saver's other processes.
    """

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self.peak_bytes: int | None = None
        """Largest memory above the level before; ``None``: not known of any save."""
        self._processes = processes
        self._before: Mapping[str, int] = {}
        self._level: int | None = None  # of the memory that samples count, when the save began
        self._sampled_ns = 0

    def begin(self) -> None:
        """Note the level before a save, while no other one runs."""
        self._before = resident_bytes("self")
        self._level = self._held_bytes(self._before)

    def end_synchronous(self) -> None:
        """Take the peak of a save that is complete when the training goes on."""
        after, peak = resident_bytes("self"), self._before.get("VmHWM")
        if peak is not None and after.get("VmHWM", peak) > peak:
            self._take(after["VmHWM"] - self._before["VmRSS"])

    def sample(self, *, at_once: bool = False) -> None:
        """Sample while a save goes on in the background.

        Args:
            at_once: sample also if the last sample is recent.
        """
        now = time.perf_counter_ns()
        if not at_once and now - self._sampled_ns < _PERIOD_NS:
            return
        self._sampled_ns = now
        held = self._held_bytes(resident_bytes("self"))
        if held is not None and self._level is not None:
            self._take(held - self._level)

    def _take(self, size: int) -> None:
        before = () if self.peak_bytes is None else (self.peak_bytes,)
        self.peak_bytes = max(0, size, *before)

    def _held_bytes(self, pages: Mapping[str, int]) -> int | None:
        if not {"RssAnon", "RssShmem"} <= pages.keys():
            return None
        # A process that has ended meanwhile holds nothing.
        others = [resident_bytes(str(pid)) for pid in self._processes()]
        return pages["RssAnon"] + pages["RssShmem"] + sum(other.get("RssAnon", 0) for other in others)


def resident_bytes(pid: str) -> dict[str, int]:
    """Resident memory of a process by kind, as ``/proc/<pid>/status`` names it; empty where it is not told."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            values = _RESIDENT.findall(file.read())
    except OSError:
        return {}
    return {kind.decode(): int(value) * _KIB for kind, value in values}
