"""Figures of one save of a checkpoint."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Save:
    """One save.

    Attributes:
        stall_s: seconds until the caller may go on.
        durable_s: seconds until all files have been flushed.
        user_s: processor time in user mode of all threads of this process: pickling, checksums, copies of tensors.
        system_s: processor time in the kernel: copies to the page cache, and its writing.
        bytes: size of all files.
        files: number of them.
        plan_s: seconds of planning which rank writes which tensor; None: the library plans nothing, or does not tell.
    """

    stall_s: float
    durable_s: float
    user_s: float
    system_s: float
    bytes: int
    files: int
    plan_s: float | None = None

    def figures(self) -> dict[str, float]:
        """The figures by name, for rounds."""
        return {
            "stall_s": self.stall_s,
            "durable_s": self.durable_s,
            "s_per_byte": self.durable_s / self.bytes,
            "gb_per_s": self.bytes / self.durable_s / 1e9,
            "serialising": self.user_s / self.durable_s,
            "kernel": self.system_s / self.durable_s,
            "bytes": self.bytes,
            "files": self.files,
            **({} if self.plan_s is None else {"plan_s": self.plan_s}),
        }


def measured(folder: Path, save: Callable[[], object], wait: Callable[[], object] = lambda: None) -> Save:
    """Measures a save.

    Args:
        folder: where its files go, and nothing else; made if needed.
        save: returns when the caller may go on.
        wait: returns when the files have been flushed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    save()
    stalled = time.perf_counter()
    wait()
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Save(stalled - began, ended - began, user_s, system_s, sum(sizes), len(sizes))
