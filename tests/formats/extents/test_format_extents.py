"""Recorded requests: the contract over files, calls, reuse and copies of the recording."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from recorded_requests import CLOSE, OPEN, PREAD, READ, SEEK, Row, records, requests_of, temporary_archive

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.extents.facts import FILES
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.extents.requests import RequestCall, Requests
from dlio_torch.formats.testing.contract import FormatContract, read, refusal


def options(requests: Requests) -> DatasetConfig:
    return DatasetConfig(format="extents", extents=ExtentsConfig(temporary_archive(requests)))


def opened_each(file: int, *reads: Row) -> list[Row]:
    return [(OPEN, file, 0, 0), *reads, (CLOSE, file, 0, 0)]


# A file for each sample, of another size each; the head of each file is read twice.
SEPARATE = requests_of(
    [40_000 + 999 * i for i in range(7)],
    [opened_each(i, (READ, i, 0, 100), (SEEK, i, 0, 0), (READ, i, 0, 40_000 + 999 * i)) for i in range(7)],
)
# Every sample reads bytes that the one before it has read, and one of a second file.
OVERLAPPING = requests_of(
    [70_000, 9000],
    [[(PREAD, 0, 9000 * i, 12_000), (PREAD, 1, 1000 * i, 1000 + i)] for i in range(7)],
    opening=[[(OPEN, 0, 0, 0), (RequestCall.FSTAT, 0, 0, 0), (READ, 0, 0, 512)], [(OPEN, 1, 0, 0)]],
)
VECTORS = requests_of(
    [500_000, 3000],
    [
        [(RequestCall.READV, 0, 71_000 * i, 30_000), (RequestCall.PREADV, 0, 71_000 * i + 40_000, 31_000)]
        for i in range(7)
    ],
    start=[(RequestCall.STAT, 1, 0, 0), *opened_each(1, (READ, 1, 0, 3000), (READ, 1, 3000, 0))],
)
MAPPED = requests_of(
    [400_000],
    [[(RequestCall.TOUCH, 0, 50_000 * i, 50_000)] for i in range(7)],
    start=[(OPEN, 0, 0, 0), (RequestCall.MMAP, 0, 0, 350_000), (CLOSE, 0, 0, 0)],
)


class TestExtents(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "records": options(records(7, 5000, header=1000)),
        "fewer-recorded": options(records(3, 5000, header=1000)),
        "more-recorded": options(records(40, 5000, header=1000)),
        "files": options(SEPARATE),
        "overlapping": options(OVERLAPPING),
        "vectors": options(VECTORS),
        "mapped": options(MAPPED),
    }

    def test_a_truncated_file(self, config: DatasetConfig, tmp_path: Path) -> None:
        """A cut file is refused by an inspection, and when it is read, which not every sample does."""
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)
        largest = max((path / FILES).rglob("*"), key=lambda inner: inner.stat().st_size * inner.is_file())
        os.truncate(largest, largest.stat().st_size // 2)
        assert str(largest) in refusal(lambda: fmt.inspect(path), closed=path)

        def read_all() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, range(self.num_samples))

        assert str(largest) in refusal(read_all, closed=path)
