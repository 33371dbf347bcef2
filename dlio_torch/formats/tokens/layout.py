"""Layout of windows of tokens: byte extents, or records that are converted when they have been read."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout import Extents, FileLayout, Ints, RecordLayout, Records, StridedLayout
from dlio_torch.formats.core.positioned_reads import read_into
from dlio_torch.formats.tokens.header import count_tokens
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.tokens.reader import STORED, first_byte
from dlio_torch.formats.tokens.windows import Windows

_WIDE = np.dtype(np.int64)


def file_layout(path: Path, options: TokensConfig) -> FileLayout:
    """The layout of a file: one extent for each window, or with targets one record for each.

    Raises:
        DataError: missing, damaged, or of another element type.
    """
    windows, itemsize = Windows.of(options), np.dtype(options.dtype).itemsize
    samples = windows.count(count_tokens(path, options))
    if not options.targets:
        zero = np.zeros(1, np.int64)
        part = Extents(zero, zero + windows.length * itemsize, zero)
        return FileLayout(samples, {STORED: StridedLayout(path, first_byte(options), windows.stride * itemsize, part)})
    with os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return FileLayout(samples, {}, WindowLayout(path, descriptor, options, samples), {path: descriptor})


class WindowLayout(RecordLayout):
    """Layout of windows with their targets: one read gives both arrays of a sample.

    Args:
        path: the file.
        descriptor: of the open file.
        options: of the format.
        samples: in the file.
    """

    def __init__(self, path: Path, descriptor: int, options: TokensConfig, samples: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._dtype = np.dtype(options.dtype)
        self._windows = Windows.of(options)
        self._first = first_byte(options)
        self._samples = samples

    def sizes(self, rows: Ints) -> Ints:
        return np.full((len(rows), 2), self._windows.length * _WIDE.itemsize, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Records:
        if len(rows) and int(rows.max()) >= self._samples:
            raise DataError(
                f"{self.path} holds {self._samples} samples, but sample {int(rows.max())} (from 0) was requested",
                hint="the file was replaced or truncated; generate or fetch the file again",
            )
        order = np.argsort(rows, kind="stable")
        offsets = self._first + rows[order] * (self._windows.stride * self._dtype.itemsize)
        spans = np.full(len(rows), self._windows.span * self._dtype.itemsize, np.int64)
        return Records(offsets, spans, np.ascontiguousarray(into[order]), self.sizes(rows), self)

    def read(self, records: Records, low: int, high: int, base: int, request: int) -> None:
        length = self._windows.length
        tokens = np.empty(self._windows.span, self._dtype)
        memory = tokens.view(np.uint8).data
        for offset, to in zip(records.offsets[low:high].tolist(), records.to[low:high].tolist(), strict=True):
            with os_errors(self.path):
                got = read_into(self._descriptor, offset, memory, request)
            if got < len(memory):
                raise DataError(
                    f"{self.path} ends within the sample at byte {offset}",
                    hint="the file was replaced or truncated; generate or fetch the file again",
                )
            for number, place in enumerate(to):
                _array_at(base + place, length)[:] = tokens[number : number + length]


def _array_at(address: int, count: int) -> npt.NDArray[np.int64]:
    """Array on memory that the caller keeps alive."""
    memory = (ctypes.c_char * (count * _WIDE.itemsize)).from_address(address)
    return np.frombuffer(memory, np.int64)  # type: ignore[call-overload,no-any-return]
