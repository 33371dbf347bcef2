"""Recorded requests: which bytes of which files each sample reads, by which system calls, in which order.

The files have numbers, from 0 on.  All requests lie in one table of parallel arrays, in groups: those of a process
before its first sample, those of a process when it first uses a file, and those of each sample.

A read at the position of the descriptor states its offset too, so that the bytes of a sample are known in any order of
samples.  A read of 0 bytes is one at the end of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError

Ints = npt.NDArray[np.int64]

PAGE = 4096
"""Bytes of a page; maps begin at a multiple of it."""


class RequestCall(IntEnum):
    """System call of a request.

    ``TOUCH`` is no call: the program uses bytes of a file that it has mapped.
    """

    OPEN = 0
    CLOSE = 1
    SEEK = 2
    READ = 3
    PREAD = 4
    READV = 5
    PREADV = 6
    FSTAT = 7
    STAT = 8
    MMAP = 9
    TOUCH = 10
    MUNMAP = 11


READING = (RequestCall.READ, RequestCall.PREAD, RequestCall.READV, RequestCall.PREADV, RequestCall.TOUCH)
"""Calls whose bytes are the content of samples."""

DTYPES: Mapping[str, Any] = {
    "file_bytes": np.int64,
    "sample_first": np.int64,
    "start_first": np.int64,
    "file_first": np.int64,
    "request_call": np.uint8,
    "request_file": np.int32,
    "request_offset": np.int64,
    "request_bytes": np.int64,
}
"""Element types of the arrays."""

_COLUMNS = ("request_call", "request_file", "request_offset", "request_bytes")
_HINT = "record and fit the program again"


@dataclass(frozen=True, eq=False)
class Requests:
    """Recorded requests of a data set.

    Attributes:
        file_bytes: size of each file in bytes; int64.
        sample_first: number of the first request of each sample, and the number behind the last one; int64 of
            ``(samples + 1,)``.
        request_call: :class:`RequestCall` of each request; uint8.
        request_file: its file; int32.
        request_offset: its first byte in the file; the target of a seek; 0 for calls without one; int64.
        request_bytes: bytes that it reads, maps or uses; 0 for others; int64.
        start_first: first request of a process before its first sample, and the number behind the last one; int64
            of ``(2,)``.
        file_first: as ``sample_first``, for requests with which a process opens each file that no recorded ``OPEN``
            opens; where a file has none, it is opened by one call.  int64 of ``(files + 1,)``; empty: no file has any.
    """

    file_bytes: Ints
    sample_first: Ints
    request_call: npt.NDArray[np.uint8]
    request_file: npt.NDArray[np.int32]
    request_offset: Ints
    request_bytes: Ints
    start_first: Ints = field(default_factory=lambda: np.zeros(2, np.int64))
    file_first: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.file_first):
            object.__setattr__(self, "file_first", np.zeros(len(self.file_bytes) + 1, np.int64))

    @property
    def num_samples(self) -> int:
        """Number of recorded samples."""
        return len(self.sample_first) - 1

    @cached_property
    def reads(self) -> npt.NDArray[np.bool_]:
        """Whether the bytes of each request are content."""
        return np.isin(self.request_call, READING)

    @cached_property
    def sample_bytes(self) -> Ints:
        """Bytes of content of each sample; a byte that it reads twice counts twice."""
        ends = np.zeros(len(self.request_bytes) + 1, np.int64)
        np.cumsum(np.where(self.reads, self.request_bytes, 0), out=ends[1:])
        sizes: Ints = ends[self.sample_first[1:]] - ends[self.sample_first[:-1]]
        return sizes

    @cached_property
    def same_bytes(self) -> int | None:
        """Bytes of content of each sample where all have as many, and some; else ``None``."""
        sizes = self.sample_bytes
        return int(sizes[0]) if len(sizes) and sizes[0] > 0 and bool((sizes == sizes[0]).all()) else None

    @cached_property
    def digest(self) -> str:
        """Hash of all arrays."""
        content = hashlib.sha256()
        for name, dtype in DTYPES.items():
            content.update(np.ascontiguousarray(getattr(self, name), dtype).tobytes())
            content.update(name.encode())
        return content.hexdigest()[:16]


def check_requests(requests: Requests, name: str) -> None:
    """Raise unless the arrays fit each other.

    Args:
        requests: the arrays.
        name: of their file, for the message.

    Raises:
        DataError: one line that names the array and the number that is wrong.
    """
    for array, dtype in DTYPES.items():
        values = getattr(requests, array)
        if values.dtype != dtype or values.ndim != 1:
            shown = f"{values.dtype}{list(values.shape)}"
            raise _wrong(name, f"array {array} is {shown}, and a row of {np.dtype(dtype)} is needed")
    _check_lengths(requests, name)
    _check_bounds(requests, name)


def _check_lengths(requests: Requests, name: str) -> None:
    count, files = len(requests.request_call), len(requests.file_bytes)
    for column in _COLUMNS[1:]:
        if len(getattr(requests, column)) != count:
            raise _wrong(name, f"array {column} has {len(getattr(requests, column))} elements, request_call {count}")
    if not requests.num_samples > 0:
        raise _wrong(name, "there are no samples (sample_first)")
    for array, length in (("start_first", 2), ("file_first", files + 1), ("sample_first", None)):
        firsts = getattr(requests, array)
        if length is not None and len(firsts) != length:
            raise _wrong(name, f"array {array} has {len(firsts)} elements, and {length} are needed")
        if firsts[0] < 0 or firsts[-1] > count or bool((np.diff(firsts) < 0).any()):
            raise _wrong(name, f"array {array} does not rise from 0 to at most {count}, the number of requests")


def _check_bounds(requests: Requests, name: str) -> None:
    """Raise unless each request lies in its file."""
    if len(requests.file_bytes) and int(requests.file_bytes.min()) < 0:
        raise _wrong(name, f"file {int(requests.file_bytes.argmin())} has fewer than 0 bytes")
    file, offset, size = requests.request_file, requests.request_offset, requests.request_bytes
    _check_each(name, (file < 0) | (file >= len(requests.file_bytes)), "is on a file that file_bytes does not have")
    _check_each(name, requests.request_call > max(RequestCall), "has a call of an unknown code")
    limit = requests.file_bytes[file]
    outside = (offset < 0) | (size < 0) | (size > limit) | (offset > limit - np.minimum(size, limit))
    _check_each(name, outside & (requests.request_call != RequestCall.SEEK), "reaches past the end of its file")
    _check_each(name, (offset < 0) | (size < 0), "has a negative offset or size")
    maps = requests.request_call == RequestCall.MMAP
    _check_each(
        name, maps & ((offset % PAGE != 0) | (size == 0)), f"maps no bytes, or not from a multiple of {PAGE} on"
    )


def _check_each(name: str, wrong: npt.NDArray[np.bool_], problem: str) -> None:
    if wrong.any():
        raise _wrong(name, f"request {int(wrong.argmax())} {problem}")


def _wrong(name: str, problem: str) -> DataError:
    return DataError(f"{name}: {problem}", hint=_HINT)
