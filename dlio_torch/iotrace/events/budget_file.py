"""Reads the budget file ``rank<r>.budget``, which limits the bytes and files that a rank's processes record."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"DLIOBUDG"
LAYOUT = struct.Struct("<8sqqqqqqq")
"""Magic, limit of bytes, limit of files, time of exhaustion (monotonic ns, 0: not exhausted); bytes and files taken by
spans; bytes and files taken by recorded calls.

Spans add under a lock, calls by atomic instructions: each has counters of its own.
"""
_SUFFIX = ".budget"


@dataclass(frozen=True)
class SpentBudget:
    """The recording limits of one rank, and the bytes and files used.

    Attributes:
        rank: the rank.
        limit_bytes: largest number of bytes.
        limit_files: largest number of files.
        full_ns: time of exhaustion, by the monotonic clock of the rank's host; 0 if it is not exhausted.
        bytes: bytes taken.
        files: files taken.
    """

    rank: int
    limit_bytes: int
    limit_files: int
    full_ns: int
    bytes: int
    files: int


def budget_path(directory: Path, rank: int) -> Path:
    """Path of a rank's budget file in an events folder."""
    return directory / f"rank{rank}{_SUFFIX}"


def budget_files(directory: Path, rank: int | None = None) -> list[Path]:
    """Existing budget files of an events folder, for one rank or all ranks."""
    return sorted(directory.glob("rank*.budget" if rank is None else f"rank{rank}.budget"))


def read_budget(path: Path) -> SpentBudget | None:
    """Reads a budget file; returns ``None`` if it is damaged or of another kind.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    number = path.name[len("rank") : -len(_SUFFIX)]
    if len(content) < LAYOUT.size or content[:8] != MAGIC or not number.isdecimal():
        return None
    _, limit_bytes, limit_files, full_ns, spans, span_files, calls, call_files = LAYOUT.unpack_from(content)
    return SpentBudget(int(number), limit_bytes, limit_files, full_ns, spans + calls, span_files + call_files)
