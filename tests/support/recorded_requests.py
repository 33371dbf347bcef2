"""Recorded requests for tests: rows of calls become the arrays of an archive, and recordings of made-up programs."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from dlio_torch.formats.extents.requests import READING, RequestCall, Requests
from dlio_torch.formats.extents.requests_file import write_requests

Row = tuple[RequestCall, int, int, int]
"""Call, file, offset and bytes."""

OPEN, CLOSE, SEEK, READ, PREAD = list(RequestCall)[:5]
CALLS = (CLOSE, SEEK, *[READ, PREAD] * 3, RequestCall.READV, RequestCall.PREADV, RequestCall.FSTAT, RequestCall.STAT)
"""Calls of made-up programs on open files."""


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


def scattered() -> Requests:
    """Seven samples in two files, each of which reads a head that all share, and some two further pieces."""
    pieces = [[(PREAD, i % 2, 5000 * i + 64, 100 + i), (PREAD, i % 2, 5000 * i + 300, 50)] for i in range(7)]
    samples = [[(PREAD, i % 2, 0, 64), *(pieces[i] if i % 4 else [])] for i in range(7)]
    return requests_of([30_350, 25_350], samples, opening=[[(OPEN, 0, 0, 0)], [(OPEN, 1, 0, 0)]])


class RecordedProgram:
    """A made-up program, one process, whose calls are noted as a recorder would note them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.sizes = draw(st.lists(st.integers(0, 30_000), min_size=1, max_size=3))
        self._positions: dict[int, int] = {}

    def rows(self, most: int) -> list[Row]:
        """Calls of one sample, or before the first one."""
        rows: list[Row] = []
        for _ in range(self._draw(st.integers(0, most))):
            file = self._draw(st.integers(0, len(self.sizes) - 1))
            if file not in self._positions:
                rows.append((OPEN, file, 0, 0))
                self._positions[file] = 0
            rows.append(self._row(file))
        return rows

    def _row(self, file: int) -> Row:
        call, limit = self._draw(st.sampled_from(CALLS)), self.sizes[file]
        offset = self._draw(st.integers(0, limit))
        if call == CLOSE:
            del self._positions[file]
        if call == SEEK:
            self._positions[file] = offset
        if call in (READ, RequestCall.READV):
            offset = self._positions[file]
        if call not in READING:
            return call, file, offset if call == SEEK else 0, 0
        size = self._draw(st.integers(min(1, limit - offset), limit - offset))
        if call in (READ, RequestCall.READV):
            self._positions[file] += size
        return call, file, offset, size


@st.composite
def recordings(draw: st.DrawFn) -> Requests:
    """Recordings of made-up programs."""
    program = RecordedProgram(draw)
    start = program.rows(4)
    samples = [program.rows(6) for _ in range(draw(st.integers(1, 7)))]
    return requests_of(program.sizes, samples, start)
