"""Access to byte ranges of a flat binary file, with the calls by which Megatron-LM reads its ``.bin``."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.direct_file import DirectReads, open_direct
from dlio_torch.supervision.crashes import report_truncated_maps


class BinFile(ABC):
    """Base of files from which byte ranges are read.

    Attributes:
        path: of the file.
        size: its bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with refusing(path):
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            self.size = status.st_size
            if self.size == 0:
                raise DataError(f"{path} is empty", hint="remove the file and generate the data again")

    def read(self, offset: int, into: memoryview) -> None:
        """Fill ``into`` (bytes) from byte ``offset`` on.

        Raises:
            DataError: the file ends before.
        """
        if offset < 0 or offset + len(into) > self.size:
            raise self._short(offset, len(into))
        with refusing(self.path):
            self._read(offset, into)

    @abstractmethod
    def _read(self, offset: int, into: memoryview) -> None:
        """Fill ``into`` from ``offset`` on, both inside the file."""

    def close(self) -> None:  # noqa: B027 - nothing is open between two pieces of a file that is not mapped
        """Close the file."""

    def _short(self, offset: int, wanted: int) -> DataError:
        return DataError(
            f"{self.path} has {self.size} bytes, but {wanted} bytes from byte {offset} on were requested",
            hint="the file is damaged or incomplete; remove the file and generate the data again",
        )


class ReadFile(BinFile):
    """File that is opened, positioned, read and closed for each piece."""

    def _read(self, offset: int, into: memoryview) -> None:
        with self.path.open("rb", buffering=0) as file:
            file.seek(offset)
            got = file.readinto(into)
            while 0 < got < len(into):  # Linux reads 2 GiB at a time
                more = file.readinto(into[got:])
                if not more:
                    break
                got += more
        if got != len(into):
            raise self._short(offset, len(into))


class DirectFile(BinFile):
    """File that is opened, read past the page cache and closed for each piece."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._reads = DirectReads(path)

    def _read(self, offset: int, into: memoryview) -> None:
        descriptor = open_direct(self.path)
        try:
            got = self._reads.into(descriptor, into, offset)
            while 0 < got < len(into):  # Linux reads 2 GiB at a time
                more = self._reads.into(descriptor, into[got:], offset + got)
                if not more:
                    break
                got += more
        finally:
            os.close(descriptor)
        if got != len(into):
            raise self._short(offset, len(into))


class MappedFile(BinFile):
    """File that is mapped as a whole once; pieces are copied out of the mapping."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        report_truncated_maps()
        with refusing(path):
            self._file = path.open("rb")
            try:
                self._map: memoryview | None = np.memmap(self._file, mode="r", order="C").data
            except BaseException:
                self._file.close()
                raise

    def _read(self, offset: int, into: memoryview) -> None:
        piece = np.frombuffer(self._map or b"", np.uint8, len(into), offset)
        np.copyto(np.frombuffer(into, np.uint8), piece)

    def close(self) -> None:
        self._map = None  # the last reference unmaps
        self._file.close()
