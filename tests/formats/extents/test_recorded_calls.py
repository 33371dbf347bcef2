"""The calls on the raw files are the recorded ones: all of them, in their order, with their offsets and sizes."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from calls_by_file import calls_by_file
from hypothesis import strategies as st
from io_events import examples
from recorded_requests import CLOSE, OPEN, PREAD, READ, SEEK, Row, recordings, requests_of, temporary_archive
from straced import needs_strace

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.extents.requests import RequestCall, Requests
from dlio_torch.formats.testing.contract import check_batch, is_open, read, write

STAT = RequestCall.STAT


class CallLog:
    """The calls that this process makes by ``os`` on the files of a folder.

    Attributes:
        rows: call, file, offset and bytes of each.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._files: dict[int, int] = {}
        self._positions: dict[int, int] = {}

    def open(self, path: Any, flags: int) -> int:
        descriptor = os_open(path, flags)
        self._files[descriptor] = int(Path(path).name)
        self._positions[descriptor] = 0
        self.rows.append((OPEN, self._files[descriptor], 0, 0))
        return descriptor

    def close(self, descriptor: int) -> None:
        self.rows.append((CLOSE, self._files.pop(descriptor), 0, 0))
        os_close(descriptor)

    def lseek(self, descriptor: int, offset: int, whence: int) -> int:
        assert whence == os.SEEK_SET
        self.rows.append((SEEK, self._files[descriptor], offset, 0))
        self._positions[descriptor] = os_lseek(descriptor, offset, whence)
        return self._positions[descriptor]

    def read(self, descriptor: int, size: int) -> bytes:
        content = os_read(descriptor, size)
        self._add(READ, descriptor, self._positions[descriptor], len(content))
        self._positions[descriptor] += len(content)
        return content

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        content = os_pread(descriptor, size, offset)
        self._add(PREAD, descriptor, offset, len(content))
        return content

    def readv(self, descriptor: int, memory: Sequence[memoryview]) -> int:
        count = os_readv(descriptor, memory)
        self._add(RequestCall.READV, descriptor, self._positions[descriptor], count)
        self._positions[descriptor] += count
        return count

    def preadv(self, descriptor: int, memory: Sequence[memoryview], offset: int) -> int:
        count = os_preadv(descriptor, memory, offset)
        self._add(RequestCall.PREADV, descriptor, offset, count)
        return count

    def fstat(self, descriptor: int) -> os.stat_result:
        self._add(RequestCall.FSTAT, descriptor, 0, 0)
        return os_fstat(descriptor)

    def _add(self, call: RequestCall, descriptor: int, offset: int, size: int) -> None:
        self.rows.append((call, self._files[descriptor], offset, size))


os_open, os_close, os_lseek, os_read, os_pread = os.open, os.close, os.lseek, os.read, os.pread
os_readv, os_preadv, os_fstat = os.readv, os.preadv, os.fstat
NOTED = ("open", "close", "lseek", "read", "pread", "readv", "preadv", "fstat")


@contextmanager
def noted_calls() -> Iterator[list[Row]]:
    """Notes the calls of the replay; those that look for a path, which much else does as well, are not among them."""
    log = CallLog()
    noted = SimpleNamespace(**{**vars(os), **{name: getattr(log, name) for name in NOTED}})
    with mock.patch("dlio_torch.formats.extents.call_replay.os", noted):
        yield log.rows


def recorded_rows(requests: Requests, samples: Sequence[int]) -> list[Row]:
    """Recorded requests of the start and of some samples, without those that only name a path."""
    bounds = [requests.start_first, *(requests.sample_first[sample : sample + 2] for sample in samples)]
    numbers = np.concatenate([np.arange(*bound) for bound in bounds])
    columns = requests.request_call, requests.request_file, requests.request_offset, requests.request_bytes
    rows = [(RequestCall(call), *rest) for call, *rest in zip(*(c[numbers].tolist() for c in columns), strict=True)]
    return [(row[0], row[1], row[2], row[3]) for row in rows if row[0] != STAT]


def replayed(requests: Requests, order: Sequence[int]) -> list[Row]:
    """Calls of one process that reads the samples in this order and compares their content."""
    fmt = create(DatasetConfig(format="extents", extents=ExtentsConfig(temporary_archive(requests))), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = write(fmt, Path(folder, "a.extents"), 0, requests.num_samples)
        with noted_calls() as rows, closing(fmt.open(path)) as reader:
            check_batch(fmt, read(fmt, reader, order), order)
            calls = list(rows)
        assert not is_open(path)
        opened, closed = (sum(row[0] == call for row in rows) for call in (OPEN, CLOSE))
        assert opened == closed
    return calls


@examples(recordings())
def test_one_process_in_the_recorded_order_makes_the_recorded_calls(recorded: Requests) -> None:
    order = range(recorded.num_samples)
    assert replayed(recorded, order) == recorded_rows(recorded, order)


@examples(recordings(), st.randoms(use_true_random=False))
def test_in_any_order_samples_make_their_reads_and_seeks(recorded: Requests, random: Any) -> None:
    order = list(range(recorded.num_samples))
    random.shuffle(order)
    calls = replayed(recorded, order)
    wanted = recorded_rows(recorded, order)
    bookkeeping = (OPEN, CLOSE, SEEK)
    assert [row for row in calls if row[0] not in bookkeeping] == [row for row in wanted if row[0] not in bookkeeping]
    assert [row for row in wanted if row[0] == SEEK] == subsequence(calls, [row for row in wanted if row[0] == SEEK])


def subsequence(rows: Sequence[Row], wanted: Sequence[Row]) -> list[Row]:
    """As much of ``wanted`` as ``rows`` has in this order."""
    coming = iter(rows)
    return [row for row in wanted if any(row == other for other in coming)]


def test_a_file_that_stays_open_is_opened_once_whatever_comes_first() -> None:
    samples = [[(OPEN, 0, 0, 0), (READ, 0, 0, 10)], [(READ, 0, 10, 10)], [(READ, 0, 20, 10), (CLOSE, 0, 0, 0)]]
    recorded = requests_of([100], samples)
    assert replayed(recorded, [0, 1, 2]) == recorded_rows(recorded, [0, 1, 2])
    assert replayed(recorded, [1, 0]) == [(OPEN, 0, 0, 0), (SEEK, 0, 10, 0), (READ, 0, 10, 10), (SEEK, 0, 0, 0),
                                          (READ, 0, 0, 10)]  # fmt: skip
    assert [row[0] for row in replayed(recorded, [2, 2])] == [OPEN, SEEK, READ, CLOSE] * 2


def test_a_file_that_a_sample_opens_and_closes_is_opened_although_it_is_open() -> None:
    each: list[Row] = [(OPEN, 0, 0, 0), (READ, 0, 0, 10), (CLOSE, 0, 0, 0), (PREAD, 0, 50, 10)]
    recorded = requests_of([100], [each, each], start=[(OPEN, 0, 0, 0)])
    assert replayed(recorded, [1, 0]) == recorded_rows(recorded, [1, 0])


def test_the_first_use_of_a_file_makes_the_requests_that_open_it() -> None:
    opening: list[list[Row]] = [[(OPEN, 0, 0, 0), (READ, 0, 0, 8)], [(OPEN, 1, 0, 0), (PREAD, 0, 8, 8)]]
    recorded = requests_of([100, 100], [[(PREAD, 1, 50, 10)], [(PREAD, 1, 60, 10), (PREAD, 0, 70, 10)]], (), opening)
    assert replayed(recorded, [1, 0]) == [
        (OPEN, 1, 0, 0), (OPEN, 0, 0, 0), (READ, 0, 0, 8), (PREAD, 0, 8, 8), (PREAD, 1, 60, 10), (PREAD, 0, 70, 10),
        (PREAD, 1, 50, 10),
    ]  # fmt: skip


PROGRAM = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.extents.options import ExtentsConfig

fmt = create(DatasetConfig(format="extents", extents=ExtentsConfig(sys.argv[1])), 1)
reader = fmt.open(Path("a.extents"))
for row in range(reader.num_samples):
    reader.read(row, 1, BatchBuffer(fmt.specs(), [0]), 0)
"""
NAMES = {
    "openat": OPEN, "close": CLOSE, "lseek": SEEK, "read": READ, "pread64": PREAD, "readv": RequestCall.READV,
    "preadv": RequestCall.PREADV, "preadv2": RequestCall.PREADV, "mmap": RequestCall.MMAP,
}  # fmt: skip


@needs_strace
def test_the_kernel_sees_the_recorded_calls(tmp_path: Path) -> None:
    whole = (RequestCall.MMAP, 1, 0, 9000)
    start: list[Row] = [(OPEN, 0, 0, 0), (READ, 0, 0, 100), (OPEN, 1, 0, 0), whole, (CLOSE, 1, 0, 0)]
    samples: list[list[Row]] = [
        [(SEEK, 0, 1000 * i, 0), (READ, 0, 1000 * i, 700), (PREAD, 0, 5, 50 + i), (RequestCall.TOUCH, 1, i, 4000)]
        for i in range(1, 6)
    ]
    vectors: list[Row] = [(RequestCall.READV, 0, 5700, 300), (RequestCall.PREADV, 0, 8, 80), (READ, 0, 6000, 0)]
    recorded = requests_of([6000, 9000], [*samples, vectors], start)
    archive = temporary_archive(recorded)
    fmt = create(DatasetConfig(format="extents", extents=ExtentsConfig(archive)), 1)
    folder = (tmp_path / "run").resolve()
    folder.mkdir()
    write(fmt, folder / "a.extents", 0, 6)
    calls = calls_by_file(PROGRAM, folder, archive)
    for file in (0, 1):
        log = [call for call in calls[f"a.extents/files/000/{file:06d}"] if call[0] in NAMES]
        want = [row for row in recorded_rows(recorded, range(6)) if row[1] == file and row[0] != RequestCall.TOUCH]
        want += [(CLOSE, file, 0, 0)] * file  # Python's mmap keeps a descriptor of its own
        assert [(NAMES[name], amount(name, arguments, result)) for name, arguments, result in log] == [
            (call, offset if call == SEEK else size) for call, _, offset, size in want
        ]


def amount(name: str, arguments: str, result: int) -> int:
    """Bytes of a call as strace shows it; the target of a seek."""
    if name == "mmap":
        size = re.search(r"\d+", arguments.partition(",")[2])
        assert size is not None
        return int(size[0])
    return result
