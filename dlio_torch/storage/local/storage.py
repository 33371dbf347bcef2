"""Storage in a local folder: on a local disk, or on a mounted parallel or network file system."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from dlio_torch.files.atomic_file import fsync_path, part_name, renamed
from dlio_torch.storage.base import ByteRange, Capabilities, Entry, RangeReader, Storage, check_name
from dlio_torch.storage.local.stored_paths import remove, rename_over, size_of


class LocalStorage(Storage):
    """Storage in a local folder.

    The storage of a mounted file system can be a subclass that has its own :attr:`folder` and :attr:`capabilities`.
    """

    capabilities = Capabilities(paths=True, maps=True, direct_io=True, page_cache=True, folders=True)

    @property
    def folder(self) -> Path:
        """The root as a path on this machine."""
        return Path(self.root)

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Every entry below a folder, by directory entries alone; links to folders are not followed."""
        return _below(str(self.path(folder)), f"{folder}/" if folder else "")

    def size(self, name: str) -> int | None:
        """Bytes of a file or folder; ``None`` if there is neither."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return size_of(self._file(name))
        return None

    def path(self, name: str = "") -> Path:
        """Path of a file or folder."""
        return self._file(name) if name else self.folder

    def open(self, name: str, size: int | None = None) -> BinaryIO:
        """An unbuffered file."""
        return cast(BinaryIO, open(self._file(name), "rb", buffering=0))

    def ranges(self, name: str, size: int | None = None) -> RangeReader:
        """A reader that holds one descriptor."""
        return LocalRanges(self._file(name))

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write a file and rename it; if ``durable``, flush the file before and the folder after."""
        path = self._file(name)
        try:
            _put(path, content, durable=durable)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, content, durable=durable)

    def put_file(self, name: str, source: Path, *, durable: bool) -> None:
        """Flush ``source`` if ``durable`` and rename it."""
        rename_over(source, self._file(name), fsync=durable)

    def sync_folder(self, folder: str = "") -> None:
        """Flush a folder."""
        fsync_path(self.path(folder))

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with everything in it."""
        remove(self._file(name))

    def make_folder(self, folder: str = "") -> None:
        """Make a folder and those above it."""
        self.path(folder).mkdir(parents=True, exist_ok=True)

    def _file(self, name: str) -> Path:
        return self.folder / check_name(name)


def _below(folder: str, prefix: str) -> Iterator[Entry]:
    with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            is_folder, name = entry.is_dir(), f"{prefix}{entry.name}"
            yield Entry(name, "folder" if is_folder else "file" if entry.is_file() else "other")
            if is_folder and not entry.is_symlink():
                yield from _below(entry.path, f"{name}/")


def _put(path: Path, content: bytes, *, durable: bool) -> None:
    with renamed(part_name(path), path) as part:
        part.write_bytes(content)
        if durable:
            fsync_path(part)
    if durable:
        fsync_path(path.parent)


class LocalRanges(RangeReader):
    """Reads ranges by ``pread`` from one descriptor.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, ranges: Sequence[ByteRange]) -> None:
        """Fill the memory of all ranges, one after another."""
        for offset, memory in ranges:
            done = 0
            while done < len(memory):
                count = os.preadv(self._descriptor, [memory[done:]], offset + done)
                if not count:
                    raise EOFError(
                        f"{self._path} ends at byte {offset + done}, but bytes up to {offset + len(memory)} were "
                        "requested"
                    )
                done += count

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
