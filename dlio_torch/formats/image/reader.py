"""Reader of image files, which opens, reads and closes a file for each sample as torchvision's loaders do."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.buffered_file import open_buffered, refusing
from dlio_torch.formats.core.reader import Reader


class ClassFolders:
    """Class numbers of the folders in which files lie, numbered as by torchvision's ImageFolder.

    Each folder of folders is listed once.
    """

    def __init__(self) -> None:
        self._numbers: dict[Path, dict[str, int]] = {}

    def number(self, path: Path) -> int:
        """Position of the folder of ``path`` among its siblings, sorted by name.

        Raises:
            OSError: they cannot be listed.
        """
        folder = path.absolute().parent
        numbers = self._numbers.get(folder.parent)
        if numbers is None:
            with os.scandir(folder.parent) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
            numbers = self._numbers[folder.parent] = {name: number for number, name in enumerate(names)}
        return numbers[folder.name]


class ImageReader(Reader):
    """Reader of one image file.

    The file is opened, and looked at, when the reader is made, so that the first read finds it open; it is
    closed after each read and opened again for the next one.

    Args:
        path: the file.
        buffer_bytes: Python's buffer of the open file; 0: the file system's.
        start: what is done with the file that was just opened; its result goes to ``finish``.
        finish: gives the array.
        name: of the array in a batch.
        variable: the array is of variable length.
        label: name and value of the label, if there is one.
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
        finish: Callable[[Any], npt.NDArray[np.generic]],
        name: str,
        variable: bool,
        label: tuple[str, int] | None,
        direct: bool = False,
    ) -> None:
        self._path = path
        self._buffer_bytes = buffer_bytes
        self._start, self._finish = start, finish
        self._name = name
        self._variable = variable
        self._label = label
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
                array = self._finish(self._started)
        finally:
            self.close()
        if self._variable:
            buffer.put(self._name, position, array)
        else:
            buffer.fixed[self._name][position] = array
        if self._label is not None:
            name, value = self._label
            buffer.fixed[name][position] = value

    def close(self) -> None:
        self._started = None
        if self._file is not None:
            self._file.close()
            self._file = None
