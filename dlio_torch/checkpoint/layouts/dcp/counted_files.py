"""File system that keeps sizes and no bytes: the real writer of checkpoints tells how large its files are."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from torch.distributed.checkpoint.filesystem import FileSystem


class CountedFiles(FileSystem):
    """Counts the bytes of each file.

    Attributes:
        sizes: bytes of each file, by its name.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """A stream that counts what is written to it."""
        stream = CountedStream()
        yield cast("io.IOBase", stream)
        self.sizes[Path(path).name] = stream.size

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file."""
        self.sizes[Path(new_path).name] = self.sizes.pop(Path(path).name)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Make no folder."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file was written."""
        return Path(path).name in self.sizes

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Remove a file."""
        del self.sizes[Path(path).name]


class CountedStream:
    """Stream whose content is dropped.

    Attributes:
        size: bytes of the file.
    """

    def __init__(self) -> None:
        self.size = self._position = 0

    def write(self, content: bytes) -> int:
        """Count the bytes of ``content``."""
        count = memoryview(content).nbytes
        self.seek(count, os.SEEK_CUR)
        self.size = max(self.size, self._position)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position; with ``skip_data`` torch leaves out the content of tensors in this way."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The stream stays open: the writer closes it after each tensor."""


class PlainStream:
    """Transforms of a writer's streams: none.  The writer's own put a stream without ``seek`` around each tensor."""

    def transform_save_stream(self, write_item: object, raw_stream: io.IOBase) -> tuple[io.IOBase, list[str]]:
        """The stream for a tensor, and names of its transforms."""
        return raw_stream, []
