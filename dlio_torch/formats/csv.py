"""CSV: text tables without a header, one row a sample, read as pandas 1 and 2 read them.

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
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats import payload
from dlio_torch.formats.base import FileInfo, Reader, os_errors
from dlio_torch.formats.batch import ArraySpec, Sample
from dlio_torch.formats.csv_reader import CsvReader, columns_of, concatenated, parse
from dlio_torch.formats.fieldformat import FieldFormat
from dlio_torch.formats.places.base import ArrayPlaces, NativeFile
from dlio_torch.formats.places.csv import parsed
from dlio_torch.formats.places.held import held
from dlio_torch.formats.places.whole import read_whole
from dlio_torch.trace.spans import NULL, Recorder

_WIDTHS = (3, 16)  # "d.d" to 15 digits: what every correct parser turns into the same float64
_BLOCK_BYTES = 8 << 20  # text made and written at a time
_SCAN_BYTES = 1 << 20

_Digits = npt.NDArray[np.uint8]


class CsvFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as columns of text."""

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"
    has_places: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        for spec in self._specs:
            if spec.variable:
                raise ConfigError(
                    f"dataset.fields: {spec.name} has length_mean, and the rows of a CSV file have equal lengths",
                    hint="set its length_mean=0, or take another dataset.format",
                )
        low, high = _WIDTHS
        if not low <= config.csv.value_chars <= high:
            raise ConfigError(
                f"dataset.csv.value_chars={config.csv.value_chars} is no width of a decimal number here",
                hint=f"set {low} ('0.5') to {high} (15 digits)",
            )

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        del options["read_bytes"], options["chunk_rows"]  # belong to reading
        return options

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        spec = self._specs[number]
        made = (_value(*self._digits(number, spec, sample)) for sample in range(first, first + count))
        return [array.astype(spec.dtype).reshape(spec.shape) for array in made]

    def stored_bytes(self) -> float:
        width = self.config.csv.value_chars
        return sum(math.prod(spec.shape) * ((width if spec.dtype.kind == "f" else 1) + 1) for spec in self._specs)

    def _digits(self, number: int, spec: ArraySpec, sample: int) -> tuple[_Digits, npt.NDArray[np.bool_] | None]:
        """Digits of each element, uint8 (elements, digits), and whether the last one is written (``None``: it is)."""
        generator = payload.rng(self.seed, sample, number)
        count = math.prod(spec.shape)
        long: npt.NDArray[np.bool_] | None = None
        digits = 1
        if spec.dtype.kind == "f":
            width = math.floor(self.config.csv.value_chars)
            share = self.config.csv.value_chars - width
            digits = width - 1
            if share > 0:
                digits += 1
                long = generator.random(count, dtype=np.float32) < share
        base = 2 if spec.dtype.kind == "b" else 10
        return _SCALED[base][payload.array(generator, (count, digits), np.dtype(np.uint8)).view(np.uint8)], long

    def _row(self, sample: int) -> bytes:
        """The line of one sample."""
        fields = b"".join(_text(*self._digits(number, spec, sample)) for number, spec in enumerate(self._specs))
        return fields[:-1] + b"\n"

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        step = max(1, int(_BLOCK_BYTES // self.stored_bytes()))
        with path.open("wb") as file:
            for low in range(first_sample, first_sample + num_samples, step):
                samples = range(low, min(low + step, first_sample + num_samples))
                file.write(b"".join(pool.map(self._row, samples)))

    def inspect(self, path: Path) -> FileInfo:
        columns = columns_of(self._specs)
        with os_errors(path):
            newlines, commas, ends_line, size = _scan(path)
        rows = newlines + (not ends_line)
        if next(parse(path, self.config.csv, self._specs, rows=1), None) is None:
            raise DataError(f"{path} holds no rows", hint="generate or fetch it again")
        if commas != rows * (columns - 1):
            # Empty lines, perhaps, which the parser skips; or a damaged row, which it names.
            with closing(CsvReader(path, self.config.csv, self._specs)) as reader:
                rows = reader.num_samples
        return FileInfo(rows, {"columns": columns, "bytes_per_row": round(size / rows, 1)})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return CsvReader(path, self.config.csv, self._specs)

    def places(self, path: Path) -> NativeFile:
        """All rows, in memory; parsed by pyarrow, by pandas where that takes something else than numbers."""
        with os_errors(path):
            content = read_whole(path, self.stored_bytes() * self.config.samples_per_file)
        table = parsed(content, self._specs)
        if table is None:
            with closing(CsvReader(path, self.config.csv, self._specs)) as reader:
                table = concatenated(list(reader.tables()))
        arrays: dict[str, ArrayPlaces] = {name: held(path, array) for name, array in table.items()}
        return NativeFile(len(next(iter(table.values()))), arrays, read_bytes=len(content))

    def stream(self, reader: Reader) -> Iterator[Sample]:
        """Samples in the order of the file; rows that were delivered are not kept."""
        assert isinstance(reader, CsvReader)
        for table in reader.tables():
            for row in range(len(next(iter(table.values())))):
                # A copy: one row that a shuffle pool keeps must not keep the table.
                yield {name: np.array(array[row]) for name, array in table.items()}


# --- text --------------------------------------------------------------------------------------------

# A random byte -> a digit below the base.
_SCALED = {base: (np.arange(256) * base // 256).astype(np.uint8) for base in (2, 10)}


def _text(digits: _Digits, long: npt.NDArray[np.bool_] | None) -> bytes:
    """The elements as text, a comma behind each."""
    count, width = digits.shape
    if width == 1:
        text = np.empty((count, 2), np.uint8)
        text[:, 0] = digits[:, 0] + ord("0")
    else:
        text = np.empty((count, width + 2), np.uint8)
        text[:, 0] = digits[:, 0] + ord("0")
        text[:, 1] = ord(".")
        np.add(digits[:, 1:], ord("0"), out=text[:, 2:-1])
    text[:, -1] = ord(",")
    if long is None:
        return text.tobytes()
    kept = np.ones(text.shape, np.bool_)
    kept[:, -2] = long
    return text[kept].tobytes()


def _value(digits: _Digits, long: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.float64]:
    """The elements as a parser that rounds correctly reads them: an exact integer over an exact power of ten."""
    whole = np.zeros(len(digits), np.int64)
    for column in digits.T:
        whole = whole * 10 + column
    decimals = digits.shape[1] - 1
    if long is None:
        return np.asarray(whole / 10.0**decimals)
    return np.asarray(np.where(long, whole / 10.0**decimals, whole // 10 / 10.0 ** (decimals - 1)))


def _scan(path: Path) -> tuple[int, int, bool, int]:
    """Line ends, commas, whether the last line has an end, and bytes of a file; nothing is parsed."""
    newlines = commas = size = 0
    last = b""
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_SCAN_BYTES):
            newlines += piece.count(b"\n")
            commas += piece.count(b",")
            size += len(piece)
            last = piece[-1:]
    return newlines, commas, last in (b"\n", b""), size
