"""Direct reads, which bypass the page cache (``O_DIRECT``).

Direct reads begin and end on blocks and go to aligned memory: a request is widened to whole blocks, and what was
asked for is copied out.  Requests that are aligned already keep their size.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.errors import DataError

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK = max(4096, mmap.PAGESIZE)
"""Alignment of direct reads in bytes: a multiple of the logical block size of nearly every device and file system."""


def open_direct(path: Path) -> int:
    """Opens a file for direct reads and returns its descriptor.

    Raises:
        DataError: the file system does not permit them.
        OSError: the file cannot be opened.
    """
    with _permitted(path):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)


@contextlib.contextmanager
def _permitted(path: Path) -> Iterator[None]:
    """Turn EINVAL from a direct read into the error that the file system does not permit direct reads."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise not_permitted(path) from error


def not_permitted(path: Path) -> DataError:
    """The one-line error where direct reads of ``path`` are refused."""
    return DataError(
        f"{path}: the file system does not permit direct reads (O_DIRECT, blocks of {BLOCK} bytes)",
        hint="set dataset.direct_io=false, or move the data to another file system",
    )


class DirectReads:
    """Direct reads into memory that is used again; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory = mmap.mmap(-1, BLOCK)

    def __call__(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads ``size`` bytes from ``offset`` on as ``os.pread`` does; fewer at the end of the file.

        Raises:
            DataError: the file system does not permit direct reads of whole blocks.
            OSError: the device failed.
        """
        return bytes(self._read(descriptor, size, offset))

    def into(self, descriptor: int, room: memoryview, offset: int) -> int:
        """Fill ``room`` (bytes) from ``offset`` on; returns the bytes read, fewer at the end of the file."""
        got = self._read(descriptor, len(room), offset)
        room[: len(got)] = got
        return len(got)

    def _read(self, descriptor: int, size: int, offset: int) -> memoryview:
        low = offset - offset % BLOCK
        high = -(-(offset + size) // BLOCK) * BLOCK
        if high - low > len(self._memory):
            self._memory = mmap.mmap(-1, high - low)
        view = memoryview(self._memory)[: high - low]
        with _permitted(self._path):
            got = os.preadv(descriptor, [view], low)
        return view[offset - low : max(offset - low, min(got, offset - low + size))]


class DirectRaw(io.RawIOBase):
    """Unbuffered file like ``io.FileIO``, each of whose reads is one direct read; meant for use below a buffered file.

    Raises:
        DataError: the file system does not permit direct reads.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.name = str(path)
        self._reads = DirectReads(path)
        self._position = 0
        self._descriptor = open_direct(path)

    def readable(self) -> bool:
        """The file is readable."""
        return True

    def seekable(self) -> bool:
        """The file is seekable."""
        return True

    def fileno(self) -> int:
        """The file descriptor, which accepts only aligned reads."""
        return self._descriptor

    def tell(self) -> int:
        """The offset of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        if start is None:
            start = os.fstat(self._descriptor).st_size
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        """Fill ``buffer``; returns the bytes read."""
        got = self._reads.into(self._descriptor, memoryview(buffer).cast("B"), self._position)
        self._position += got
        return got

    def readall(self) -> bytes:
        """Reads the rest of the file, in one call if the system returns all of it."""
        size = os.fstat(self._descriptor).st_size
        pieces = []
        while self._position < size:
            piece = self._reads(self._descriptor, size - self._position, self._position)
            if not piece:
                break
            self._position += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def whole(self) -> memoryview:
        """Reads the whole file into new memory: by one call, or by several if the file has more than 2 GiB."""
        size = os.fstat(self._descriptor).st_size
        memory = memoryview(mmap.mmap(-1, max(1, -(-size // BLOCK)) * BLOCK))
        done = 0
        with _permitted(self._path):
            while done < size:
                got = os.preadv(self._descriptor, [memory[done:]], done)
                if not got:
                    break
                done += got
        return memory[:done]

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)
