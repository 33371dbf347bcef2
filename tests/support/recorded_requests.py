"""Recorded requests for tests: rows of calls become the arrays of an archive."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.formats.extents.requests import RequestCall, Requests
from dlio_torch.formats.extents.requests_file import write_requests

Row = tuple[RequestCall, int, int, int]
"""Call, file, offset and bytes."""

OPEN, CLOSE, SEEK, READ, PREAD = list(RequestCall)[:5]


def requests_of(
    file_bytes: Sequence[int],
    samples: Sequence[Sequence[Row]],
    start: Sequence[Row] = (),
    opening: Sequence[Sequence[Row]] = (),
) -> Requests:
    """The arrays of these requests; ``opening``: of each file."""
    groups = [start, *opening, *samples]
    rows = np.array([row for group in groups for row in group], np.int64).reshape(-1, 4)
    firsts = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    behind = 1 + len(opening)
    return Requests(
        np.array(file_bytes, np.int64),
        firsts[behind:],
        rows[:, 0].astype(np.uint8),
        rows[:, 1].astype(np.int32),
        rows[:, 2],
        rows[:, 3],
        firsts[:2],
        firsts[1 : behind + 1] if opening else np.zeros(0, np.int64),
    )


def temporary_archive(requests: Requests) -> str:
    """Path of an archive that is there until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="requests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_requests(folder / "requests.npz", requests)
    return str(folder / "requests.npz")


def records(count: int = 7, size: int = 600, header: int = 0) -> Requests:
    """One file of records of equal size, each of which a sample reads after a seek."""
    samples = [[(SEEK, 0, header + size * i, 0), (READ, 0, header + size * i, size)] for i in range(count)]
    return requests_of([header + size * count], samples, start=[(OPEN, 0, 0, 0), (READ, 0, 0, header)])
