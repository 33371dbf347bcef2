"""Division of a mapped text file among threads, with the calls of pandas 3.1.

pandas 3.1 reads a file of 5 MiB and more with ``pd.read_csv(path, header=None)`` so: it looks at the length of some
lines, divides the file at line ends, maps it, and each thread parses parts out of the mapping
(pandas/io/parsers/readers.py: ``_can_parallelize_csv``, ``_read_csv_parallel``, ``_find_chunk_byte_offsets``).
pandas before 3.1 has no such code, so the division is computed here, and every version makes the same calls.
"""

from __future__ import annotations

import io
import mmap
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from dlio_torch.environment.cores import whole_cores
from dlio_torch.supervision.crashes import report_truncated_maps

MAPPED_BYTES = 5 << 20
"""Least size of a file that pandas maps."""

_PIECE = 256 << 10  # bytes that a parser gets at a time
_MOST_WORKERS = 6
_PROBES = 9
_LONGEST_LINE = 1 << 20
_PART_BYTES = 4 << 20
_PART_ROWS = 2000
_PARTS_OF_COLUMNS = 1800
_PARTS_OF_A_WORKER = 3
_LAST_PART = 0.2  # size of the last part, relative to a full one

Parsed = TypeVar("Parsed")


def parts_of(path: Path, header: bool, delimiter: str, threads: int) -> list[tuple[int, int]]:
    """Byte ranges of a file that threads parse; empty if pandas would not map the file.

    Args:
        path: the file.
        header: the first line holds names.
        delimiter: between two columns.
        threads: number of workers; 0: one per core, at most six.

    Raises:
        OSError: the file cannot be read.
    """
    workers = threads or min(whole_cores(), _MOST_WORKERS)
    size = os.path.getsize(path)
    if workers < 2 or size < MAPPED_BYTES:
        return []
    start = _data_start(path, header)
    if size - start < MAPPED_BYTES:
        return []
    with open(path, "rb") as file:
        preamble = file.read(start)
    if header and not preamble.rstrip(b"\r\n"):
        return []
    start = _data_start(path, header)
    rows = (size - start) // _line_bytes(path, start, size - start)
    number = min(workers * _PARTS_OF_A_WORKER, rows // _PART_ROWS)
    if number < 2:
        if size - start < 2 * MAPPED_BYTES:
            return []
        number = 2
    with open(path, "rb") as file:
        preamble, line = file.read(start), file.readline()
    if b"\r" in (preamble + line).replace(b"\r\n", b"") or not line.strip():
        return []
    columns = line.count(delimiter.encode()) + 1
    by_size = min((size - start) // _PART_BYTES, _PARTS_OF_COLUMNS // columns, rows // _PART_ROWS)
    if by_size > workers:
        by_size = -(-by_size // workers) * workers
    ends = _line_ends(path, start, size, _weights(max(number, by_size), workers))
    return list(pairwise(ends)) if len(ends) > 2 else []


def parse_parts(
    path: Path, parts: list[tuple[int, int]], threads: int, parse: Callable[[io.RawIOBase], Parsed]
) -> list[Parsed] | None:
    """Parses parts of a mapped file by several threads.

    Args:
        path: the file.
        parts: first byte of each, and the one after its last.
        threads: number of workers; 0: one per core, at most six.
        parse: gets a file object with the bytes of a part; raises ``ValueError`` for what it cannot parse.

    Returns:
        The results in file order; ``None`` if a part could not be parsed.

    Raises:
        OSError: the file cannot be mapped.
    """
    report_truncated_maps()
    workers = min(threads or min(whole_cores(), _MOST_WORKERS), len(parts))
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(parts)):
        waiting.put(number)
    results: dict[int, Parsed] = {}
    failed = threading.Event()
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def work() -> None:
        while not failed.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            low, high = parts[number]
            try:
                results[number] = parse(_MappedPart(mapping, low, high))
            except ValueError:
                failed.set()

    with mapping, ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(workers)]:
            future.result()
    return None if failed.is_set() else [results[number] for number in range(len(parts))]


class _MappedPart(io.RawIOBase):
    """File object over a byte range of a mapping."""

    def __init__(self, mapping: mmap.mmap, low: int, high: int) -> None:
        self._mapping, self._position, self._end = mapping, low, high

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes, whatever size is requested; empty at the end."""
        end = min(self._end, self._position + _PIECE)
        begin, self._position = self._position, end
        return self._mapping[begin:end]


def _data_start(path: Path, header: bool) -> int:
    """First byte behind the names of the columns."""
    with open(path, "rb") as file:
        if header:
            file.readline()
        return file.tell()


def _line_bytes(path: Path, start: int, size: int) -> int:
    """Median length of some lines."""
    lengths = []
    with open(path, "rb") as file:
        for probe in range(_PROBES):
            file.seek(start + size * probe // _PROBES)
            file.readline(_LONGEST_LINE)
            line = file.readline(_LONGEST_LINE)
            if line:
                lengths.append(len(line))
    return sorted(lengths)[len(lengths) // 2] if lengths else size


def _weights(parts: int, workers: int) -> list[float]:
    """Relative sizes of the parts, of which the last ones are smaller if there are more parts than workers."""
    small = min(2 * workers, parts) if parts > workers else 0
    return [1.0] * (parts - small) + [1.0 - (1.0 - _LAST_PART) * (place + 1) / small for place in range(small)]


def _line_ends(path: Path, start: int, size: int, weights: list[float]) -> list[int]:
    """First byte of each part, at the begin of a line, and the end of the file."""
    ends, weight, total = [start], 0.0, sum(weights)
    with open(path, "rb") as file:
        for share in weights[:-1]:
            weight += share
            target = start + int((size - start) * weight / total)
            if target >= size:
                break
            file.seek(target)
            file.readline()
            position = file.tell()
            if position >= size:
                break
            if position != ends[-1]:
                ends.append(position)
    return [*ends, size]
