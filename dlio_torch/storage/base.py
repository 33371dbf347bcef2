"""The Storage contract: list, read, write and delete the files of a data set or a checkpoint, wherever they lie.

A storage is rooted: a local folder, or a bucket with a prefix.  Files are named below the root, with ``/`` between the
parts of a name.  A storage may be sent to other processes and used by many threads at once.

Errors are those of Python: :class:`FileNotFoundError` for a missing file, :class:`OSError` for whatever the system or
the service refuses.  :class:`dlio_torch.storage.testing.StorageContract` checks an implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Literal, NamedTuple

ByteRange = tuple[int, memoryview]
"""Offset in the file in bytes, and the contiguous byte memory to fill from there."""


@dataclass(frozen=True)
class Capabilities:
    """Optional capabilities of a storage; options that need a missing capability are refused.

    Attributes:
        paths: files have paths on this machine, which any library can open.
        maps: files can be mapped into memory (``mmap``).
        direct_io: reads can bypass the page cache (``O_DIRECT``), where the file system permits it.
        page_cache: reads go through the page cache of this machine, which can be filled and evicted.
        folders: folders exist by themselves, also empty ones.
    """

    paths: bool = False
    maps: bool = False
    direct_io: bool = False
    page_cache: bool = False
    folders: bool = False


class Entry(NamedTuple):
    """Entry of a listing.

    Attributes:
        name: name below the root.
        kind: ``other`` is neither file nor folder: a broken link, a socket.
        size: bytes of a file, where the listing tells them without another request; else ``None``.
    """

    name: str
    kind: Literal["file", "folder", "other"]
    size: int | None = None


class RangeReader(ABC):
    """Thread-safe reader of byte ranges of one file into given memory."""

    @abstractmethod
    def read(self, ranges: Sequence[ByteRange]) -> None:
        """Fill the memory of all ranges; a storage may join neighbours and have many requests in flight.

        Raises:
            EOFError: the file ends before a range does.
            OSError: the file cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the reader holds."""

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Storage(ABC):
    """Location of the files of a data set or a checkpoint: a local folder or a bucket.

    Args:
        root: local folder or URL, as the user wrote it.

    Attributes:
        root: as given.
        capabilities: what it can do beyond the contract.
    """

    capabilities: ClassVar[Capabilities]

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def list(self, folder: str = "") -> Iterator[Entry]:
        """Every entry below a folder, at any depth, in any order; unreadable folders are left out.

        Args:
            folder: name of the folder; "": the root.  One that does not exist has no entries.
        """

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Bytes of a file, or of all files of a folder; ``None`` if there is neither."""

    @abstractmethod
    def path(self, name: str = "") -> Path:
        """Local path of a file, for libraries that open files themselves; the file need not exist.

        Args:
            name: name of the file; "": the root.

        Raises:
            io.UnsupportedOperation: the storage has no paths.
        """

    @abstractmethod
    def open(self, name: str, size: int | None = None) -> BinaryIO:
        """Opens an unbuffered file for reading from start to end or by seeks.

        Args:
            name: name of the file.
            size: its bytes if they are known, which may save a request.

        Raises:
            OSError: the file cannot be opened.
        """

    @abstractmethod
    def ranges(self, name: str, size: int | None = None) -> RangeReader:
        """Opens a reader of byte ranges of a file.

        Args:
            name: name of the file.
            size: its bytes if they are known, which may save a request.

        Raises:
            OSError: the file cannot be opened; a storage may find this out at the first range.
        """

    @abstractmethod
    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write a whole file atomically: readers see the old or the new content; an error changes nothing.

        Folders in the name are made.  Any number of threads and processes may put different names at once.  Only one
        may put the same name at a time: of two at once either may fail, and readers may see bytes of both.

        Args:
            name: name of the file; an existing one is replaced.
            content: its bytes.
            durable: return when content and name survive a crash of the machine.

        Raises:
            OSError: the file cannot be written.
        """

    @abstractmethod
    def put_file(self, name: str, source: Path, *, durable: bool) -> None:
        """Move a local file to a name, or a folder that some libraries write as one file.

        Args:
            name: the name, whose parent folder exists.  A file replaces a file or folder of this name;
                a folder replaces only a folder.
            source: complete, on this machine; of a local storage on the same file system.  It is gone afterwards.
            durable: have the content on the device before it gets the name.  The name itself survives a crash when
                :meth:`sync_folder` has returned: many names at the cost of one request.

        Raises:
            OSError: the file cannot be moved; NotADirectoryError for a folder over a plain file.
        """

    @abstractmethod
    def sync_folder(self, folder: str = "") -> None:
        """Flush the entries of a folder, so that file names survive a crash of the machine.

        Raises:
            OSError: the system refuses it.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; a missing name is no error.

        Raises:
            OSError: it cannot be deleted.
        """

    @abstractmethod
    def make_folder(self, folder: str = "") -> None:
        """Create a folder and its parents; an existing folder is no error, and storages without folders do nothing.

        Raises:
            OSError: the folder cannot be made.
        """


def check_name(name: str) -> str:
    """Check that a name lies below the root, and return the name.

    Raises:
        ValueError: it is empty, absolute, or leads out of the root.
    """
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise ValueError(f"{name!r} must be a relative name below the root of the storage")
    return name
