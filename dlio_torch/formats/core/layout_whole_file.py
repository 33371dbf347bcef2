"""Reading of whole files, with one call for a small file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SMALL = 64 << 10
"""File size in bytes up to which one read of the whole file is cheaper than several reads of its parts."""

HEAD = 1024
"""Usual size in bytes of the header before the elements of a file."""

_SLACK = 4096
_LONG_HEAD = 16 << 10  # more than NumPy accepts

_MOST = 1 << 30  # bytes of one call; the system gives 2 GiB at most


class Begun:
    """File of which the first bytes, or all bytes, have been read.

    Attributes:
        path: the file.
        data: its first bytes.
        size: of the file.
        descriptor: of the open file; ``None``: ``data`` is all of it.
    """

    def __init__(self, path: Path, data: bytes, size: int, descriptor: int | None) -> None:
        self.path, self.data, self.size, self.descriptor = path, data, size, descriptor

    @contextmanager
    def file(self) -> Iterator[IO[bytes]]:
        """File object for reading the header before the elements."""
        if self.descriptor is None:
            yield io.BytesIO(self.data)
        else:
            with os.fdopen(self.descriptor, "rb", closefd=False) as file:
                yield file

    def head(self) -> IO[bytes]:
        """File object over the first bytes only, as many as the header of a NumPy array takes."""
        if self.descriptor is not None and int.from_bytes(self.data[8:10], "little") + 16 > len(self.data):
            self.data = os.pread(self.descriptor, _LONG_HEAD, 0)
        return io.BytesIO(self.data)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def begin(path: Path, expected: float, head: int = HEAD) -> Begun:
    """Open a file and read it whole by one call if it is small; otherwise read its first bytes and leave it open.

    Args:
        path: the file.
        expected: bytes that it may have.
        head: bytes of the begin of a larger file.

    Raises:
        OSError: it cannot be read.
    """
    small = expected <= SMALL
    most = int(expected * 1.5) + _SLACK if small else head
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, most) if most else b""
        if small and len(data) < most:
            os.close(descriptor)
            return Begun(path, data, len(data), None)
        return Begun(path, data, os.fstat(descriptor).st_size, descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def opened(files: Sequence[Begun]) -> dict[Path, int]:
    """Descriptors of the files that are still open."""
    return {file.path: file.descriptor for file in files if file.descriptor is not None}


def read_whole(path: Path, expected: float | None) -> bytes:
    """Reads all bytes of a file, by one call if the file is not much larger than expected.

    Args:
        path: the file.
        expected: bytes of a file, in the mean; ``None``: the size of this file, at the cost of one more call.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        usual = os.fstat(descriptor).st_size if expected is None else expected * 1.5
        most = min(int(usual) + _LONG_HEAD, _MOST)
        content = os.read(descriptor, most)
        if len(content) < most:
            return content
        pieces = [content]  # larger than expected
        size = os.fstat(descriptor).st_size
        while pieces[-1]:
            pieces.append(os.read(descriptor, min(_MOST, max(_LONG_HEAD, size))))
        return b"".join(pieces)
    finally:
        os.close(descriptor)
