"""Reader of CSV files: reads pieces of a fixed size, parses them with pandas and keeps the rows in memory.

pandas before 3.1 reads a file with read(2) calls of 262,144 bytes from the start to the end; pandas 3.1
maps large files into memory (:mod:`dlio_torch.formats.csv.mapped`).  Here pandas parses what an unbuffered file or a
mapping hands it, so that every version gives the system calls that ``dataset.csv.reader`` asks for.
"""

from __future__ import annotations

import bisect
import io
import re
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.csv.mapped import parse_parts, parts_of
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.formats.csv.parsed_rows import (
    NOT_THE_FIELDS,
    Table,
    columns_of,
    concatenated,
    no_rows,
    rows_of,
    selected,
    table_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.parsers import TextFileReader

_RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")

Tables = Generator[Table, None, None]


class _PieceFile(io.FileIO):
    """File object whose every read returns ``piece`` bytes from one read(2), whatever size is requested.

    Its other calls are those of ``pandas.read_csv(path)``: pandas looks whether the path is a file, Python's text layer
    asks for the position, and reads once more at the end.
    """

    def __init__(self, path: Path, piece: int) -> None:
        path.is_file()
        super().__init__(path)
        self.tell()
        self._piece = piece

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns the next piece; the last piece may be shorter, and further reads are empty."""
        return super().read(self._piece) or super().read(self._piece)


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
            self._ends.append(rows_of(table) + (self._ends[-1] if self._ends else 0))

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
            begin = self._ends[number] - rows_of(table)
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


def parse(path: Path, options: CsvConfig, specs: list[ArraySpec], rows: int | None = None) -> Tables:
    """Yields the tables of a file in order; opens the file before the first table and closes it after the last.

    Args:
        path: the file.
        options: read size, and rows of a table.
        specs: arrays of a row.
        rows: only so many rows, as one table; ``None``: all.
    """
    first = 0
    whole = not options.chunk_rows or rows is not None
    if options.reader == "mapped" and whole and rows is None:
        mapped = _mapped_table(path, options, specs)
        if mapped is not None:
            yield mapped
            return
    with (
        _understood(path, options, specs),
        _small_file(path) if options.reader == "mapped" else _PieceFile(path, options.read_bytes) as file,
        _parser(file, options, header=options.header) as parser,
    ):
        while (frame := _next_frame(parser, rows or options.chunk_rows)) is not None:
            table = table_of(frame, first, path, options, specs)
            first += len(frame)
            del frame  # it is larger than the table
            if whole:
                break  # the file is closed before anything is done with the rows
            yield table
    if whole:
        yield table


def _small_file(path: Path) -> TextIO:
    """Opens a file as pandas does since 1.2 where it does not map it: the parser reads decoded text."""
    return open(path, encoding="utf-8", newline="")


def _parser(file: io.RawIOBase | TextIO, options: CsvConfig, *, header: bool, **keywords: Any) -> TextFileReader:
    """Opens the parser, which reads the first piece now and others as rows are asked for."""
    import pandas as pd  # only for reading: files are written without it

    names = 0 if header else None
    parser: TextFileReader = pd.read_csv(
        file, header=names, sep=options.delimiter, engine="c", iterator=True, **keywords
    )
    return parser


def _mapped_table(path: Path, options: CsvConfig, specs: list[ArraySpec]) -> Table | None:
    """All rows of a mapped file; ``None`` if it is small or has other content than the fields, as for pandas."""

    def parse_part(part: io.RawIOBase) -> Table:
        with _parser(part, options, header=False, low_memory=False) as parser:
            frame = parser.read()
        try:
            if any(dtype.kind not in "iuf" for dtype in selected(frame, path, options).dtypes):
                raise ValueError("there are values that are not numbers")
            return table_of(frame, 0, path, options, specs)
        except DataError as error:
            # The row is counted from the begin of the part; the reader that starts at the begin of the file names it.
            raise ValueError(error.message) from error

    with _understood(path, options, specs):
        parts = parts_of(path, options.header, options.delimiter, options.threads)
        tables = parse_parts(path, parts, options.threads, parse_part) if parts else None
    return concatenated(tables) if tables is not None else None


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
def _understood(path: Path, options: CsvConfig, specs: list[ArraySpec]) -> Iterator[None]:
    """Turn errors of the pandas parser into one-line errors that name the file."""
    import pandas as pd

    try:
        yield
    except pd.errors.EmptyDataError as error:
        raise no_rows(path) from error
    except pd.errors.ParserError as error:
        ragged = _RAGGED.search(str(error))
        if ragged is None or options.columns or options.header:
            raise open_error(path, error) from error
        columns = columns_of(specs)
        before, line, actual = map(int, ragged.groups())
        # The parser takes the first row's length for the right one.
        row, wrong = (line - 1, actual) if before == columns else (0, before)
        raise DataError(
            f"{path}: row {row} has {wrong} columns, but dataset.fields describe {columns}", hint=NOT_THE_FIELDS
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not a text file ({error.reason})",
            hint="replace the file by a text file, or correct dataset.format",
        ) from error
    except OSError as error:
        raise open_error(path, error) from error
