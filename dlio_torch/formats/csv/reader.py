"""Reader of CSV files: reads pieces of a fixed size, parses them with pandas and keeps the rows in memory.

pandas 1.5 and 2.2 read a file with read(2) calls of 262,144 bytes from the start to the end; pandas 3
maps large files into memory.  Here pandas parses what an unbuffered file hands it, so that every
version gives the same system calls.
"""

from __future__ import annotations

import bisect
import io
import math
import re
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.csv.options import CsvConfig

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.parsers import TextFileReader

_RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_NOT_THE_FIELDS = "correct dataset.fields, or replace the file"

Table = dict[str, npt.NDArray[np.generic]]  # some rows: the arrays of all of them, rows along the first axis
Tables = Generator[Table, None, None]


class _PieceFile(io.FileIO):
    """File object whose every read returns ``piece`` bytes from one read(2), whatever size is requested."""

    def __init__(self, path: Path, piece: int) -> None:
        super().__init__(path)
        self._piece = piece

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns the next piece; the last piece may be shorter, and further reads are empty."""
        return super().read(self._piece)


class CsvReader(Reader):
    """Open CSV file, parsed only as far as its rows were requested.

    Args:
        path: the file.
        options: read size, and rows that are parsed at a time.
        specs: arrays of a row.

    Raises:
        DataError: the file, or its first rows, are not what ``specs`` say.
    """

    def __init__(self, path: Path, options: CsvConfig, specs: list[ArraySpec]) -> None:
        self._path = path
        self._options = options
        self._specs = specs
        self._begin()
        self._parse_until(1)

    def _begin(self) -> None:
        self._kept: list[Table] = []
        self._ends: list[int] = []
        self._rest = parse(self._path, self._options, self._specs)
        self._complete = False

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Number of rows; counting them parses the file to its end."""
        self._parse_until(None)
        return self._ends[-1]

    def _parse_until(self, rows: int | None) -> None:
        """Parse until ``rows`` rows are in memory; ``None``: to the end of the file."""
        while not self._complete and (rows is None or not self._ends or self._ends[-1] < rows):
            table = next(self._rest, None)
            if table is None:
                self._complete = True
                return
            self._kept.append(table)
            self._ends.append(_rows(table) + (self._ends[-1] if self._ends else 0))

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        self._parse_until(first + count)
        if first < 0 or count < 0 or first + count > self._ends[-1]:
            raise DataError(
                f"{self._path} has {self._ends[-1]} rows, but rows {first} to {first + count - 1} were requested",
                hint="the file was replaced or truncated; generate or fetch the file again",
            )
        row, end = first, first + count
        while row < end:
            number = bisect.bisect_right(self._ends, row)
            table = self._kept[number]
            begin = self._ends[number] - _rows(table)
            stop = min(end, self._ends[number])
            for name, array in table.items():
                buffer.fixed[name][position + row - first : position + stop - first] = array[row - begin : stop - begin]
            row = stop

    def tables(self) -> Iterator[Table]:
        """Yields the parsed tables of the file in order; tables parsed here for the first time are not kept in memory.

        After a read beyond them, the file is opened and parsed again.
        """
        if self._complete:
            yield from self._kept
            return
        ready, rest = self._kept, self._rest
        self._begin()
        with closing(rest):
            while ready:
                yield ready.pop(0)
            yield from rest

    def close(self) -> None:
        self._rest.close()
        self._kept.clear()


def concatenated(tables: Sequence[Table]) -> Table:
    """Concatenates the rows of all tables."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _rows(table: Table) -> int:
    return len(next(iter(table.values())))


def parse(path: Path, options: CsvConfig, specs: list[ArraySpec], rows: int | None = None) -> Tables:
    """Yields the tables of a file in order; opens the file before the first table and closes it after the last.

    Args:
        path: the file.
        options: read size, and rows of a table.
        specs: arrays of a row.
        rows: only so many rows, as one table; ``None``: all.
    """
    import pandas as pd  # only for reading: files are written without it

    first = 0
    whole = not options.chunk_rows or rows is not None
    # iterator=True: pandas reads the first piece now, the others as rows are asked for.
    with (
        _understood(path, specs),
        _PieceFile(path, options.read_bytes) as file,
        pd.read_csv(file, header=None, engine="c", iterator=True) as parser,
    ):
        while (frame := _next_frame(parser, rows or options.chunk_rows)) is not None:
            table = _table(frame, first, path, specs)
            first += len(frame)
            del frame  # it is larger than the table
            if whole:
                break  # the file is closed before anything is done with the rows
            yield table
    if whole:
        yield table


def _next_frame(parser: TextFileReader, rows: int) -> pd.DataFrame | None:
    """Returns the next ``rows`` rows (0: all remaining rows), or ``None`` at the end of the file."""
    import pandas as pd

    with warnings.catch_warnings():
        # Columns that are numbers at first and text later: _table() says where.
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        try:
            return parser.read(rows or None)
        except StopIteration:
            return None


@contextmanager
def _understood(path: Path, specs: list[ArraySpec]) -> Iterator[None]:
    """Turn errors of the pandas parser into one-line errors that name the file."""
    import pandas as pd

    try:
        yield
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{path} holds no rows", hint="generate or fetch the file again") from error
    except pd.errors.ParserError as error:
        ragged = _RAGGED.search(str(error))
        if ragged is None:
            raise open_error(path, error) from error
        columns = columns_of(specs)
        before, line, actual = map(int, ragged.groups())
        # The parser takes the first row's length for the right one.
        row, wrong = (line - 1, actual) if before == columns else (0, before)
        raise DataError(
            f"{path}: row {row} has {wrong} columns, but dataset.fields describe {columns}", hint=_NOT_THE_FIELDS
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not a text file ({error.reason})",
            hint="replace the file by a text file, or correct dataset.format",
        ) from error
    except OSError as error:
        raise open_error(path, error) from error


def columns_of(specs: list[ArraySpec]) -> int:
    """Number of columns of a row."""
    return sum(math.prod(spec.shape) for spec in specs)


def _table(frame: pd.DataFrame, first: int, path: Path, specs: list[ArraySpec]) -> Table:
    """Converts the rows of ``frame`` to arrays; its first row is row ``first`` of the file.

    Raises:
        DataError: another number of columns, or something that is no number of the field's type.
    """
    columns = columns_of(specs)
    if frame.shape[1] != columns:
        raise DataError(
            f"{path}: row {first} has {frame.shape[1]} columns, but dataset.fields describe {columns}",
            hint=_NOT_THE_FIELDS,
        )
    # All columns in one matrix, as the application's DataFrame.values.
    values = frame.to_numpy()
    if values.dtype.kind not in "iuf" or np.isnan(values.min()):
        raise _no_number(frame, first, path)
    table: Table = {}
    end = 0
    for spec in specs:
        begin, end = end, end + math.prod(spec.shape)
        # A matrix with other columns of floating-point numbers has lost the last digits of large integers.
        mixed = values.dtype.kind == "f" and spec.dtype.kind != "f"
        part = frame.iloc[:, begin:end].to_numpy() if mixed else values[:, begin:end]
        with np.errstate(invalid="ignore", over="ignore"):
            array = part.astype(spec.dtype)
        if spec.dtype.kind != "f" and not (same := array == part).all():
            row, column = np.argwhere(~same)[0].tolist()
            raise DataError(
                f"{path}: row {first + row} has {part[row, column]} in column {begin + column}, which is not of type "
                f"{spec.dtype.name} as field {spec.name} requires",
                hint=_NOT_THE_FIELDS,
            )
        table[spec.name] = array.reshape(len(frame), *spec.shape)
    return table


def _no_number(frame: pd.DataFrame, first: int, path: Path) -> DataError:
    """The error that names the first row with a value that is not a number."""
    import pandas as pd

    location: tuple[int, int] | None = None
    for column in range(frame.shape[1]):
        bad = pd.to_numeric(frame.iloc[:, column], errors="coerce").isna().to_numpy()
        if bad.any():
            row = int(bad.argmax())
            location = (row, column) if location is None or row < location[0] else location
    if location is None:  # True and False alone
        location = (0, int(np.argmax([dtype.kind not in "iuf" for dtype in frame.dtypes])))
    row, column = location
    value: Any = frame.iat[row, column]
    content = (
        "no value (a short row or an empty field)" if pd.isna(value) else f"{str(value)[:40]!r}, which is not a number,"
    )
    return DataError(f"{path}: row {first + row} has {content} in column {column}", hint=_NOT_THE_FIELDS)
