"""Reader of windows of tokens, with the calls of nanoGPT's ``get_batch``."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.tokens.facts import HEADER_BYTES
from dlio_torch.formats.tokens.header import count_tokens
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.tokens.windows import Windows
from dlio_torch.supervision.crashes import report_truncated_maps

INPUTS, TARGETS, STORED = "x", "y", "tokens"
"""Names of the arrays of a sample."""


def first_byte(options: TokensConfig) -> int:
    """Byte of a file at which its tokens begin."""
    return HEADER_BYTES if options.header == "llm.c" else 0


class TokensReader(Reader):
    """Base of the two readers, which differ in how they get the tokens of a window.

    Args:
        path: the file.
        options: of the format.

    Raises:
        DataError: missing, damaged, or of another element type.
    """

    num_samples: int

    def __init__(self, path: Path, options: TokensConfig) -> None:
        self._path = path
        self._options = options
        self._dtype = np.dtype(options.dtype)
        self._windows = Windows.of(options)
        self.tokens = self._count()
        self.num_samples = self._windows.count(self.tokens)
        if not self.num_samples:
            self.close()
            raise DataError(
                f"{path} has {self.tokens} tokens, fewer than the {self._windows.span} that a sample needs",
                hint="lower dataset.tokens.window",
            )

    def _count(self) -> int:
        """Number of tokens in the file."""
        return count_tokens(self._path, self._options)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        windows = self._windows
        with refusing(self._path):
            tokens = self._taken(first * windows.stride, windows.tokens(count), buffer)
            for number in range(count):
                start, place = number * windows.stride, position + number
                window = tokens[start : start + windows.length]
                if self._options.targets:
                    buffer.fixed[INPUTS][place] = window
                    buffer.fixed[TARGETS][place] = tokens[start + 1 : start + 1 + windows.length]
                else:
                    buffer.fixed[STORED][place] = window

    @abstractmethod
    def _taken(self, start: int, count: int, buffer: BatchBuffer) -> npt.NDArray[Any]:
        """``count`` tokens from number ``start`` on; all of them lie in the file."""

    def _changed(self, tokens: int) -> DataError:
        return DataError(
            f"{self._path} had {self.tokens} tokens when it was opened, but now ends after {tokens}",
            hint="the file was replaced or truncated; generate or fetch the file again",
        )


class FileReader(TokensReader):
    """Reader that opens, seeks, reads and closes the file for each piece."""

    def _taken(self, start: int, count: int, buffer: BatchBuffer) -> npt.NDArray[Any]:
        offset = first_byte(self._options) + start * self._dtype.itemsize
        tokens = np.fromfile(self._path, self._dtype, count, offset=offset)
        if len(tokens) < count:
            raise self._changed(start + len(tokens))
        return tokens

    def close(self) -> None:
        """Nothing is open between two pieces."""


class MappedReader(TokensReader):
    """Reader that slices a ``numpy.memmap`` of the file.

    With ``reopen=batch`` the mapping lives as long as the memory of one batch is filled, as the local variable ``data``
    of nanoGPT's ``get_batch``.
    """

    _map: npt.NDArray[Any] | None = None
    _batch: weakref.ref[BatchBuffer] | None = None

    def __init__(self, path: Path, options: TokensConfig) -> None:
        super().__init__(path, options)
        self._by_batch = options.reopen == "batch"
        if not self._by_batch:
            self._map = self._mapped()

    def _count(self) -> int:
        """A file that stays mapped is mapped now, and has as many tokens as its mapping."""
        if self._options.reopen == "batch" or self._options.header != "none":
            return super()._count()
        try:
            self._map = self._mapping()
        except (OSError, ValueError):  # no file, or no whole number of tokens: counting them says so
            return super()._count()
        return len(self._map)

    def keep_mapped(self) -> None:
        """From now on, keep one mapping until the reader is closed, as a stream has no batches."""
        self._by_batch = False

    def _taken(self, start: int, count: int, buffer: BatchBuffer) -> npt.NDArray[Any]:
        if self._by_batch and (self._batch is None or self._batch() is not buffer):
            self._map = None  # the last reference unmaps
            self._batch = weakref.ref(buffer, self._unmap)
        if self._map is None:
            self._map = self._mapped()
        return self._map[start : start + count]

    def _mapped(self) -> npt.NDArray[Any]:
        mapped = self._mapping()
        if len(mapped) < self.tokens:
            raise self._changed(len(mapped))
        return mapped

    def _mapping(self) -> npt.NDArray[Any]:
        report_truncated_maps()
        return np.memmap(self._path, self._dtype, "r", first_byte(self._options))

    def _unmap(self, batch: weakref.ref[BatchBuffer]) -> None:
        if self._batch is batch:
            self._map = None

    def close(self) -> None:
        self._map = None
