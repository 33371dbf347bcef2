"""Work on the page cache of this machine: in this process, or in one that no recorder watches.

A process whose I/O calls are recorded must not evict files or look at them itself: those calls would be taken
for the run's.  It starts :class:`Outside` before the recording begins.  Run as a program, this module reads one
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
_ENDING_S = 5.0
TOGETHER = 64
"""Files that one look opens."""


def look(files: Sequence[str]) -> dict[str, Any]:
    """How much of some files is cached.

    Returns:
        ``told_bytes``: bytes of the files that could be told of; ``cached_bytes``: those in the page cache, by
        estimate; ``worst``: the file with the largest share and that share, None where none could be told of.
    """
    told = cached = 0.0
    worst: tuple[str, float] | None = None
    probes = max(_LEAST_PROBES, min(PROBES, _MOST_PROBES // max(1, len(files))))
    for low in range(0, len(files), TOGETHER):
        some = files[low : low + TOGETHER]
        for path, found in zip(some, cached_shares(some, probes), strict=True):
            if found is None:
                continue
            share, size = found
            told, cached = told + size, cached + share * size
            if worst is None or share > worst[1]:
                worst = (path, share)
    return {"told_bytes": told, "cached_bytes": cached, "worst": worst}


def _evict(files: Sequence[str]) -> list[str]:
    return [why for path in files if (why := evict(path)) is not None]


def _read(files: Sequence[str]) -> list[str]:
    return [why for path in files if (why := read_through(path)) is not None]


def _why(files: Sequence[str]) -> list[str]:
    return [why_cached(path) for path in files]


_TASKS: dict[str, Callable[[Sequence[str]], Any]] = {"look": look, "evict": _evict, "read": _read, "why": _why}


class Hands(Protocol):
    """Who does the work."""

    def do(self, task: str, files: Sequence[str]) -> Any:
        """Do ``look``, ``evict``, ``read`` or ``why`` with some files; the last three give lines of text."""

    def close(self) -> None:
        """No more work comes."""


class Here:
    """Done in this process."""

    def do(self, task: str, files: Sequence[str]) -> Any:
        """Do it now."""
        return _TASKS[task](files)

    def close(self) -> None:
        """Nothing is open."""


class Outside:
    """Done in a process of its own, which is neither recorded nor ever waited for before :meth:`close`."""

    def __init__(self) -> None:
        variables = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        command = [sys.executable, "-m", "dlio_torch.storage.local.cache_process"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )

    def do(self, task: str, files: Sequence[str]) -> Any:
        """Let the process do it.

        Raises:
            RunFailed: it has ended.
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
                "the process that prepares the page cache has ended", hint="see its messages, or set cache=as_is"
            )
        return json.loads(answer)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _main() -> None:
    """Do what comes on standard input until it ends."""
    for line in sys.stdin:
        task, files = json.loads(line)
        print(json.dumps(_TASKS[task](files)), flush=True)


if __name__ == "__main__":
    _main()
