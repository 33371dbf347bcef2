"""Storage in a folder of this machine: a local disk, or a parallel or network file system that is mounted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from dlio_torch.storage.base import ByteRange, Capabilities, Entry, RangeReader, Storage, check_name
from dlio_torch.storage.local.atomic_file import fsync_path, part_name, renamed
from dlio_torch.storage.local.stored_paths import give_name, remove, size_of


class LocalStorage(Storage):
    """A folder of this machine."""

    capabilities = Capabilities(paths=True, maps=True, direct_io=True, page_cache=True, folders=True)

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Every entry below a folder, by directory entries alone; links to folders are not followed."""
        return _below(str(self._folder(folder)), f"{folder}/" if folder else "")

    def size(self, name: str) -> int | None:
        """Bytes of a file or folder; ``None`` if there is neither."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return size_of(self.path(name))
        return None

    def path(self, name: str) -> Path:
        """Path of a file."""
        return Path(self.root, check_name(name))

    def open(self, name: str, size: int | None = None) -> BinaryIO:
        """An unbuffered file."""
        return cast(BinaryIO, open(self.path(name), "rb", buffering=0))

    def ranges(self, name: str, size: int | None = None) -> RangeReader:
        """A reader that holds one descriptor."""
        return LocalRanges(self.path(name))

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write, flush if ``durable``, rename, and flush the folder if ``durable``."""
        path = self.path(name)
        try:
            _put(path, content, durable=durable)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, content, durable=durable)

    def put_file(self, name: str, source: Path, *, durable: bool) -> None:
        """Flush ``source`` if ``durable`` and rename it."""
        give_name(source, self.path(name), fsync=durable)

    def sync_folder(self, folder: str = "") -> None:
        """Flush a folder."""
        fsync_path(self._folder(folder))

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with everything in it."""
        remove(self.path(name))

    def make_folder(self, folder: str = "") -> None:
        """Make a folder and those above it."""
        self._folder(folder).mkdir(parents=True, exist_ok=True)

    def _folder(self, folder: str) -> Path:
        return self.path(folder) if folder else Path(self.root)


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
                    raise EOFError(f"{self._path} ends at byte {offset + done}, before {offset + len(memory)}")
                done += count

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
