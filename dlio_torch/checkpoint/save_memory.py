"""Samples how much memory a rank's saves take while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

_PERIOD_S = 0.02
_KIB = 1024


class SaveMemory:
    """Peak memory of saves above the level before them.

    Counted are the anonymous and shared pages of this process and the anonymous pages of the saver's other processes,
    whose shared pages belong to this process, too.  Pages of mapped files do not count, as the kernel can drop them.
    A thread samples while a save runs; at other times it sleeps.  What the training itself allocates meanwhile, for
    example for batches ahead, counts as well.

    Args:
        processes: returns the ids of the saver's other processes.
    """

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self.peak_bytes: int | None = None
        """Largest memory above the level before; ``None``: no save was long enough for a sample, or it is not known."""
        self._processes = processes
        self._level: int | None = None  # when the save began
        self._running = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start sampling, unless an earlier save still runs."""
        if self._running.is_set():
            return
        self._level = self._held_bytes()
        if self._level is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._sample_saves, name="save memory", daemon=True)
            self._thread.start()
        self._running.set()

    def end(self) -> None:
        """Stop sampling, as no save runs any more."""
        self._running.clear()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._running.set()
        if self._thread is not None:
            self._thread.join()

    def _sample_saves(self) -> None:
        while self._running.wait() and not self._closed.wait(_PERIOD_S):
            # Read the level first: the next save may begin while this sample is taken.
            level, held = self._level, self._held_bytes()
            if self._running.is_set() and level is not None and held is not None:
                before = () if self.peak_bytes is None else (self.peak_bytes,)
                self.peak_bytes = max(0, held - level, *before)

    def _held_bytes(self) -> int | None:
        pages = resident_bytes("self", ("RssAnon", "RssShmem"))
        if pages is None:
            return None
        # A process that has ended meanwhile holds nothing.
        others = [resident_bytes(str(pid), ("RssAnon",)) for pid in self._processes()]
        return pages + sum(size for size in others if size is not None)


def resident_bytes(pid: str, kinds: Sequence[str]) -> int | None:
    """Resident memory of a process, of the kinds that ``/proc/<pid>/status`` names; ``None`` where it is not told."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    if not all(kind in values for kind in kinds):
        return None
    return sum(int(values[kind].split()[0]) * _KIB for kind in kinds)
