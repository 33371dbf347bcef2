"""Measurement of device limits: read rates of a test file in a folder.

fio reads if it is installed, else threads of this process.  ``cold`` reads through the page cache, from which the file
is evicted before each pass; ``direct`` reads past the page cache; ``warm`` reads a cached file.  The file has no name
while it holds data, so a killed process leaves nothing.

A host's cache may lie below the disk of a virtual machine: figures compare within one machine only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dlio_torch.environment.cores import whole_cores
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.errors import PreconditionError
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS, evict, read_through, why_cached
from dlio_torch.storage.local.page_cache import cached_share
from dlio_torch.storage.local.raw_readers import ReadResult, fio_version, read_with_fio, read_with_threads
from dlio_torch.units import format_size

Pattern = Literal["sequential", "random"]
Cached = Literal["cold", "warm", "direct"]

LEAST_REQUEST = 4096
MOST_REQUEST = 16 << 20
MOST_THREADS = 64
_LEAST_BYTES = 4 << 20
_BLOCK_BYTES = 4 << 20
_FREE_PART = 10  # of the free space, one in so many bytes may be taken
_WRITING = 4  # the file is written for at most so many times the time of a measurement
_STILL_CACHED = 0.03
_ATTEMPTS, _PAUSE_S = 4, 0.2


@dataclass(frozen=True)
class ReadWorkload:
    """Read workload whose rate is measured.

    Attributes:
        pattern: each thread reads its part of the file from start to end, or blocks in random order, each once.
        cached: state of the page cache; ``direct``: reads bypass it.
        request_bytes: size of one read call.
        threads: number of threads that read at once.
    """

    pattern: Pattern
    cached: Cached
    request_bytes: int
    threads: int

    @classmethod
    def like(cls, pattern: Pattern, cached: Cached, request_bytes: float, threads: int) -> ReadWorkload:
        """The workload with these figures rounded to powers of two, so that one measurement serves many runs."""
        size = min(max(round(request_bytes), LEAST_REQUEST), MOST_REQUEST)
        count = min(max(threads, 1), MOST_THREADS)
        return cls(pattern, cached, _power_of_two(size), _power_of_two(count))

    @classmethod
    def most(cls, cached: Cached) -> ReadWorkload:
        """The workload of large sequential requests by several threads, which is fastest on nearly any storage."""
        return cls("sequential", cached, 1 << 20, _power_of_two(min(16, max(4, whole_cores()))))

    def __str__(self) -> str:
        source = {"cold": "evicted before", "warm": "from the page cache", "direct": "past the page cache"}
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return f"{self.pattern} reads of {format_size(self.request_bytes)} by {threads}, {source[self.cached]}"


@dataclass(frozen=True)
class Limit:
    """Result of one measurement.

    Attributes:
        request: the workload.
        bytes_per_s: bytes over seconds.
        calls_per_s: read calls over seconds.
        seconds: length of the measurement.
        reader: the program: fio and its version, or threads of this process.
        measured_at: UTC, ISO 8601.
    """

    request: ReadWorkload
    bytes_per_s: float
    calls_per_s: float
    seconds: float
    reader: str
    measured_at: str

    def __str__(self) -> str:
        return f"{self.reader}: {self.request}"


def measure(
    folder: Path | str, requests: Sequence[ReadWorkload], *, seconds: float = 0.5, size_bytes: int = 256 << 20
) -> list[Limit]:
    """Measure some requests in one folder.

    Takes at most about ``seconds`` for each, four times that for writing the file, and half a second for each
    start of fio.

    Args:
        folder: an existing folder that can be written.
        requests: what to measure.
        seconds: longest time of one measurement.
        size_bytes: size of the file, less where that takes too long or a tenth of the free space is less.

    Raises:
        PreconditionError: the folder cannot be written or is nearly full, its files cannot be evicted, or the
            file system does not permit direct reads.
    """
    with _file(Path(folder), size_bytes, seconds * _WRITING) as (place, size):
        return [_measure(place, size, request, seconds, Path(folder)) for request in requests]


def _measure(place: str, size: int, request: ReadWorkload, seconds: float, folder: Path) -> Limit:
    # Whole requests of every thread.
    part = size // request.threads // request.request_bytes * request.request_bytes
    if part == 0:
        raise PreconditionError(
            f"{request}: the test file of {format_size(size)} in {folder} is too small for one request per thread",
            hint="raise storage.limits_bytes, or free space",
        )
    reader = "own reader"
    reading: ReadResult | None = None
    version = fio_version()
    if version is not None:
        _prepare(place, request, folder)
        try:
            reading = read_with_fio(place, request.pattern, request.cached, request.request_bytes, request.threads,
                                    part, seconds)  # fmt: skip
            reader = version
        except OSError as error:
            reader = f"own reader ({error})"
    if reading is None:
        _prepare(place, request, folder)
        try:
            reading = read_with_threads(
                place, request.pattern, request.cached, request.request_bytes, request.threads, part, seconds
            )
        except OSError as error:
            raise PreconditionError(
                f"the storage of {folder} cannot be measured: {error.strerror or error}", hint="set storage.limits=off"
            ) from error
    return Limit(
        request, reading.bytes / reading.seconds, reading.calls / reading.seconds, reading.seconds, reader,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _prepare(place: str, request: ReadWorkload, folder: Path) -> None:
    """Bring the test file into the cache state of the workload."""
    if request.cached == "warm":
        read_through(place)
        return
    if request.cached == "direct":
        evict(place)
        return
    for attempt in range(_ATTEMPTS):  # a page that the system moves or writes at that moment stays
        time.sleep(_PAUSE_S * attempt)
        evict(place)
        if describe_mount("", folder, {})["file_system"] in MEMORY_FILE_SYSTEMS:
            break
        if (cached_share(place) or 0.0) <= _STILL_CACHED:
            return
    raise PreconditionError(
        f"{folder} cannot be measured cold: {why_cached(folder)}", hint="choose another dataset.root"
    )


@contextlib.contextmanager
def _file(folder: Path, size_bytes: int, seconds: float) -> Iterator[tuple[str, int]]:
    """Creates an unnamed test file of random bytes; yields its path and size."""
    try:
        free = shutil.disk_usage(folder).free
        if free // _FREE_PART < _LEAST_BYTES:
            raise PreconditionError(
                f"{folder} has only {format_size(free)} free space, too little to measure the storage",
                hint="free space, or set storage.limits=off",
            )
        descriptor = _without_name(folder)
        try:
            size = _fill(descriptor, min(size_bytes, free // _FREE_PART), seconds)
            yield f"/proc/{os.getpid()}/fd/{descriptor}", size
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PreconditionError(
            f"the storage of {folder} cannot be measured: {error.strerror or error}", hint="set storage.limits=off"
        ) from error


def _without_name(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    path = folder / f".dlio_torch-limit-{os.getpid()}"  # a file system that cannot do that
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def _fill(descriptor: int, size: int, seconds: float) -> int:
    """Write random bytes for a limited time; returns the bytes that are on the device then."""
    noise = memoryview(os.urandom(_BLOCK_BYTES) * 2)
    end = time.monotonic() + seconds
    written = 0
    while written + _BLOCK_BYTES <= size and (written == 0 or time.monotonic() < end):
        # Each block starts at another byte, so that no two blocks of the file are alike.
        start = written // _BLOCK_BYTES % _BLOCK_BYTES
        written += os.write(descriptor, noise[start : start + _BLOCK_BYTES])
        os.fsync(descriptor)
    return written


def _power_of_two(value: int) -> int:
    """The power of two that is nearest on a logarithmic scale."""
    lower = 1 << (value.bit_length() - 1)
    return lower if value * value <= 2 * lower * lower else 2 * lower


def to_record(limit: Limit) -> dict[str, Any]:
    """The limit as JSON-ready values; :func:`from_record` reads it."""
    return {**vars(limit), "request": dict(vars(limit.request))}


def from_record(record: dict[str, Any]) -> Limit:
    """Restores the limit from a record of :func:`to_record`.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return Limit(**{**record, "request": ReadWorkload(**record["request"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"the record of a device limit is damaged: {error}") from error
