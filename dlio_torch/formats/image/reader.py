"""Reader of image files, which opens, reads and closes a file for each sample as torchvision's loaders do."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer, Sample
from dlio_torch.formats.core.buffered_file import open_buffered, refusing
from dlio_torch.formats.core.reader import Reader


class ImageReader(Reader):
    """Reader of one image file.

    The file is opened, and looked at, when the reader is made, so that the first read finds it open; it is
    closed after each read and opened again for the next one.

    Args:
        path: the file.
        buffer_bytes: Python's buffer of the open file; 0: the file system's.
        start: what is done with the file that was just opened; its result goes to ``finish``.
        finish: gives the arrays of the sample.
        variable: names of the arrays of variable length.
        direct: read past the page cache.

    Raises:
        DataError: the file cannot be opened, or ``start`` refuses it.
    """

    num_samples = 1

    def __init__(
        self,
        path: Path,
        buffer_bytes: int,
        *,
        start: Callable[[IO[bytes], Path], Any],
        finish: Callable[[Any, Path], Sample],
        variable: frozenset[str],
        direct: bool = False,
    ) -> None:
        self._path = path
        self._buffer_bytes = buffer_bytes
        self._start, self._finish = start, finish
        self._variable = variable
        self._direct = direct
        self._file: io.BufferedReader | None = None
        self._open()

    def _open(self) -> None:
        try:
            with refusing(self._path):
                self._file = open_buffered(self._path, self._buffer_bytes, direct=self._direct)
                self._started = self._start(self._file, self._path)
        except BaseException:
            self.close()
            raise

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        if (first, count) != (0, 1):
            raise DataError(
                f"{self._path} holds one image, but samples {first} to {first + count - 1} were requested",
                hint="the file does not belong to the data set; generate or fetch the file again",
            )
        if self._file is None:
            self._open()
        try:
            with refusing(self._path):
                arrays = self._finish(self._started, self._path)
        finally:
            self.close()
        for name, array in arrays.items():
            if name in self._variable:
                buffer.put(name, position, array)
            else:
                buffer.fixed[name][position] = array

    def close(self) -> None:
        self._started = None
        if self._file is not None:
            self._file.close()
            self._file = None
