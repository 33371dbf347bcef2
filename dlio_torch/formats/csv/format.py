"""Format ``csv``: text tables, one row per sample, read with the calls of pandas.

The elements of all fields of a sample stand one after another in its row.  Floating-point elements are
decimal numbers ``d.ddd`` of ``value_chars`` characters in the mean; integers are one digit, as class
labels are.

A CSV file has no index: what was parsed stays in memory, as in the applications, until the file is closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_in_memory import held
from dlio_torch.formats.core.layout_whole_file import read_whole
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.csv.layout import parsed
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.formats.csv.parsed_rows import columns_of, concatenated, no_rows
from dlio_torch.formats.csv.reader import CsvReader, parse
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_WIDTHS = (3, 16)  # "d.d" to 15 digits: what every correct parser turns into the same float64
_BLOCK_BYTES = 1 << 20  # text that one thread makes at a time
_AHEAD = 8
_SCAN_BYTES = 1 << 20

_Digits = npt.NDArray[np.uint8]
_Long = npt.NDArray[np.bool_] | None  # None: everything is written


class CsvFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as columns of text."""

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: CsvConfig = config.of(CsvConfig)
        super().__init__(config, seed)
        for spec in self._specs:
            if spec.variable:
                raise ConfigError(
                    f"dataset.fields: {spec.name} sets length_mean, but all rows of a CSV file have equal lengths",
                    hint="set length_mean=0 for the field, or choose another dataset.format",
                )
        _check(config, self.options)
        low, high = _WIDTHS
        if not low <= self.options.value_chars <= high:
            raise ConfigError(
                f"dataset.csv.value_chars={self.options.value_chars}: a decimal number cannot be written in so many "
                "characters",
                hint=f"set {low} characters (as in '0.5') to {high} (15 digits, point and sign)",
            )

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for name in ("read_bytes", "chunk_rows", "reader", "threads", "columns"):  # belong to reading
            del options[name]
        for name in ("header", "delimiter"):  # absent from the names of data sets that were generated without them
            if options[name] == getattr(CsvConfig(), name):
                del options[name]
        return options

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        spec = self._specs[number]
        values = _value(*self._digits(number, spec, first, count))
        return [array.astype(spec.dtype).reshape(spec.shape) for array in values]

    def stored_bytes(self) -> float:
        width = self.options.value_chars
        row = sum(math.prod(spec.shape) * ((width if spec.dtype.kind == "f" else 1) + 1) for spec in self._specs)
        return row + len(self._names()) / self.config.samples_per_file

    def _names(self) -> bytes:
        """The line with the names of the columns; empty if files have none."""
        if not self.options.header:
            return b""
        names = [
            f"{spec.name}_{number}" if spec.shape else spec.name
            for spec in self._specs
            for number in range(math.prod(spec.shape))
        ]
        return self.options.delimiter.join(names).encode() + b"\n"

    def _digits(self, number: int, spec: ArraySpec, first: int, count: int) -> tuple[_Digits, _Long]:
        """Digits of each element, uint8 of ``(samples, elements, digits)``, and whether the last digit is written."""
        elements = math.prod(spec.shape)
        share, digits = 0.0, 1
        if spec.dtype.kind == "f":
            share = self.options.value_chars % 1
            digits = math.floor(self.options.value_chars) - (share == 0)
        # Of the numbers of a sample, those that say how long each element is come first, four bytes each.
        before = 4 * elements if share > 0 else 0
        size = -(-before // 8) * 8 + elements * digits
        drawn = np.empty((count, size), np.uint8)
        payload.fill(drawn.reshape(-1), self.seed, number, first, np.full(count, size, np.int64))
        long = None
        if share > 0:
            words = np.ascontiguousarray(drawn[:, :before]).view(np.uint32) >> np.uint32(8)
            long = words.astype(np.float32) * np.float32(2.0**-24) < share
        base = 2 if spec.dtype.kind == "b" else 10
        return _SCALED[base][drawn[:, size - elements * digits :]].reshape(count, elements, digits), long

    def _lines(self, samples: range) -> bytes:
        """The text lines of consecutive samples."""
        fields = [
            _text(*self._digits(number, spec, samples.start, len(samples)), ord(self.options.delimiter))
            for number, spec in enumerate(self._specs)
        ]
        text = np.concatenate([characters for characters, _ in fields], axis=1)
        text[:, -1] = ord("\n")
        if all(kept is None for _, kept in fields):
            return text.tobytes()
        every = [np.ones(part.shape, np.bool_) if kept is None else kept for part, kept in fields]
        written: _Digits = text[np.concatenate(every, axis=1)]
        return written.tobytes()

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        step = max(1, int(_BLOCK_BYTES // self.stored_bytes()))
        end = first_sample + num_samples
        blocks = (range(low, min(low + step, end)) for low in range(first_sample, end, step))
        with path.open("wb") as file:
            file.write(self._names())
            file.writelines(in_order(pool, self._lines, blocks, _AHEAD))

    def inspect(self, path: Path) -> FileInfo:
        columns = columns_of(self._specs)
        with os_errors(path):
            newlines, delimiters, ends_line, size = _scan(path, self.options.delimiter.encode())
        lines = newlines + (not ends_line)
        rows = lines - self.options.header
        if next(parse(path, self.options, self._specs, rows=1), None) is None:
            raise no_rows(path)
        if self.options.columns or delimiters != lines * (columns - 1):
            # Empty lines, perhaps, which the parser skips; or a damaged row, which it names.
            with closing(CsvReader(path, self.options, self._specs)) as reader:
                rows = reader.num_samples
        return FileInfo(rows, {"columns": columns, "bytes_per_row": round(size / rows, 1)})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return CsvReader(path, self.options, self._specs)

    def layout(self, path: Path) -> FileLayout:
        """Layout of all rows in memory, parsed by pyarrow, or by pandas if pyarrow finds values other than numbers."""
        with os_errors(path):
            content = read_whole(path, self.stored_bytes() * self.config.samples_per_file)
        table = None if self.options.columns else parsed(content, self._specs, self.options)
        if table is None:
            with closing(CsvReader(path, self.options, self._specs)) as reader:
                table = concatenated(list(reader.tables()))
        arrays: dict[str, ArrayLayout] = {name: held(path, array) for name, array in table.items()}
        return FileLayout(len(next(iter(table.values()))), arrays, read_bytes=len(content))

    def stream(self, reader: Reader) -> Iterator[Sample]:
        """Yields samples in file order; delivered rows are not kept in memory."""
        assert isinstance(reader, CsvReader)
        for table in reader.tables():
            for row in range(len(next(iter(table.values())))):
                # A copy: one row that a shuffle pool keeps must not keep the table.
                yield {name: np.array(array[row]) for name, array in table.items()}


def _check(config: DatasetConfig, options: CsvConfig) -> None:
    """Raise unless the options fit each other.

    Raises:
        ConfigError: they do not.
    """
    delimiter = options.delimiter
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '+-."\r\n':
        raise ConfigError(
            f"dataset.csv.delimiter={delimiter!r} cannot separate numbers",
            hint="set one character, for example , or ; or a tabulator",
        )
    if options.columns and config.path is None:
        raise ConfigError(
            f"dataset.csv.columns={options.columns} selects from existing files, but dataset.path is not set",
            hint="set dataset.path, or remove dataset.csv.columns",
        )
    if any(column < 0 for column in options.columns):
        raise ConfigError(
            f"dataset.csv.columns={options.columns} has a negative position", hint="count columns from 0 on"
        )
    if options.reader == "mapped" and options.chunk_rows:
        raise ConfigError(
            f"dataset.csv.reader=mapped cannot be used with dataset.csv.chunk_rows={options.chunk_rows}: pandas maps "
            "files that it parses as a whole",
            hint="set dataset.csv.chunk_rows=0, or dataset.csv.reader=buffered",
        )


# --- text --------------------------------------------------------------------------------------------

# A random byte -> a digit below the base.
_SCALED = {base: (np.arange(256) * base // 256).astype(np.uint8) for base in (2, 10)}


def _text(digits: _Digits, long: _Long, delimiter: int) -> tuple[_Digits, _Long]:
    """The elements as characters, each followed by the delimiter, and a mask of the characters to write."""
    count, elements, width = digits.shape
    text = np.empty((count, elements, width + 1 + (width > 1)), np.uint8)
    text[:, :, 0] = digits[:, :, 0] + ord("0")
    if width > 1:
        text[:, :, 1] = ord(".")
        np.add(digits[:, :, 1:], ord("0"), out=text[:, :, 2:-1])
    text[:, :, -1] = delimiter
    kept: _Long = None
    if long is not None:
        kept = np.ones(text.shape, np.bool_)
        kept[:, :, -2] = long
        kept = kept.reshape(count, -1)
    return text.reshape(count, -1), kept


def _value(digits: _Digits, long: _Long) -> npt.NDArray[np.float64]:
    """The elements as a correctly rounding parser reads them: an exact integer divided by an exact power of ten."""
    whole = np.zeros(digits.shape[:2], np.int64)
    for place in range(digits.shape[2]):
        whole = whole * 10 + digits[:, :, place]
    decimals = digits.shape[2] - 1
    if long is None:
        return np.asarray(whole / 10.0**decimals)
    return np.asarray(np.where(long, whole / 10.0**decimals, whole // 10 / 10.0 ** (decimals - 1)))


def _scan(path: Path, delimiter: bytes) -> tuple[int, int, bool, int]:
    """Counts line ends, delimiters and bytes of a file without parsing; and whether the last line is terminated."""
    newlines = delimiters = size = 0
    last = b""
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_SCAN_BYTES):
            newlines += piece.count(b"\n")
            delimiters += piece.count(delimiter)
            size += len(piece)
            last = piece[-1:]
    return newlines, delimiters, last in (b"\n", b""), size
