"""Workers that evict, read and measure files in the page cache: this process, or a helper process.

A process whose I/O calls are recorded must not do this itself: its calls would count as the run's.  It starts a
:class:`CacheProcess` before the recording begins.  Run as a program, this module is the helper process: it reads one
task a line and answers with one line, both JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dlio_torch.errors import RunFailed
from dlio_torch.storage.local.eviction import evict, read_through, why_cached
from dlio_torch.storage.local.page_cache import PROBES, cached_shares

_MOST_PROBES = 4096
_LEAST_PROBES = 16
_EXIT_TIMEOUT_S = 5.0
FILES_AT_ONCE = 64
"""Files that are open at once while their cached shares are measured."""


def measure_cached(files: Sequence[str]) -> dict[str, Any]:
    """Measures how much of some files lies in the page cache.

    Returns:
        ``measured_bytes``: bytes of the files whose cached share is known; ``cached_bytes``: estimate of those in the
        page cache; ``worst``: the file with the largest cached share and that share, None if no share is known.
    """
    measured = cached = 0.0
    worst: tuple[str, float] | None = None
    probes = max(_LEAST_PROBES, min(PROBES, _MOST_PROBES // max(1, len(files))))
    for low in range(0, len(files), FILES_AT_ONCE):
        batch = files[low : low + FILES_AT_ONCE]
        for path, residency in zip(batch, cached_shares(batch, probes), strict=True):
            if residency is None:
                continue
            share, size = residency
            measured, cached = measured + size, cached + share * size
            if worst is None or share > worst[1]:
                worst = (path, share)
    return {"measured_bytes": measured, "cached_bytes": cached, "worst": worst}


def measure_files(files: Sequence[str]) -> list[float]:
    """Measures the cached share of each file; files whose share is not known are left out."""
    shares: list[float] = []
    for low in range(0, len(files), FILES_AT_ONCE):
        residencies = cached_shares(files[low : low + FILES_AT_ONCE], PROBES)
        shares += [residency[0] for residency in residencies if residency is not None]
    return shares


def _evict(files: Sequence[str]) -> list[str]:
    return [why for path in files if (why := evict(path)) is not None]


def _read(files: Sequence[str]) -> list[str]:
    return [why for path in files if (why := read_through(path)) is not None]


def _why_cached(files: Sequence[str]) -> list[str]:
    return [why_cached(path) for path in files]


_TASKS: dict[str, Callable[[Sequence[str]], Any]] = {
    "measure": measure_cached,
    "measure_files": measure_files,
    "evict": _evict,
    "read": _read,
    "why_cached": _why_cached,
}


class CacheWorker(Protocol):
    """Runs tasks on the page cache of this machine."""

    def run(self, task: str, files: Sequence[str]) -> Any:
        """Run a task on some files and return its result.

        Args:
            task: ``measure`` or ``measure_files`` (see :func:`measure_cached` and :func:`measure_files`), or ``evict``,
                ``read`` or ``why_cached``, whose results are lines of text: errors of the first two, a reason for each
                file of the last.
            files: paths.
        """

    def close(self) -> None:
        """Release what the worker holds."""


class InProcess:
    """Runs page-cache tasks in this process."""

    def run(self, task: str, files: Sequence[str]) -> Any:
        """Run a task now; see :meth:`CacheWorker.run`."""
        return _TASKS[task](files)

    def close(self) -> None:
        """Release nothing."""


class CacheProcess:
    """Runs page-cache tasks in a helper process, whose I/O calls are not recorded."""

    def __init__(self) -> None:
        variables = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        command = [sys.executable, "-m", "dlio_torch.storage.local.cache_process"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )

    def run(self, task: str, files: Sequence[str]) -> Any:
        """Run a task in the helper process; see :meth:`CacheWorker.run`.

        Raises:
            RunFailed: the helper process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([task, list(files)]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise RunFailed(
                "the process that prepares the page cache has ended",
                hint="see the messages of that process above, or set cache=as_is",
            )
        return json.loads(answer)

    def close(self) -> None:
        """End the helper process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _main() -> None:
    """Run tasks from standard input until it ends."""
    for line in sys.stdin:
        task, files = json.loads(line)
        print(json.dumps(_TASKS[task](files)), flush=True)


if __name__ == "__main__":
    _main()
