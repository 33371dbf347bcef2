"""Conversion of parsed rows of a text table to the arrays of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    import pandas as pd

NOT_THE_FIELDS = "correct dataset.fields, or replace the file"
"""Advice for a file that is not what the fields say."""

Table = dict[str, npt.NDArray[np.generic]]
"""Arrays of some rows, which lie along the first axis."""


def concatenated(tables: Sequence[Table]) -> Table:
    """Concatenates the rows of all tables."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def no_rows(path: Path) -> DataError:
    """The error for a file that has no rows: it is empty, or holds column names alone."""
    return DataError(f"{path} holds no rows", hint="remove the file, or generate or fetch it again")


def rows_of(table: Table) -> int:
    """Number of rows."""
    return len(next(iter(table.values())))


def selected(frame: pd.DataFrame, path: Path, options: CsvConfig) -> pd.DataFrame:
    """The columns that make a sample.

    Raises:
        DataError: the file has fewer columns than a position in ``dataset.csv.columns`` says.
    """
    beyond = next((column for column in options.columns if column >= frame.shape[1]), None)
    if beyond is not None:
        raise DataError(
            f"{path} has {counted(frame.shape[1], 'column')}, but dataset.csv.columns names position {beyond}",
            hint="correct dataset.csv.columns, which counts from 0 on, or replace the file",
        )
    return frame.iloc[:, options.columns] if options.columns else frame


def columns_of(specs: list[ArraySpec]) -> int:
    """Number of columns of a row."""
    return sum(math.prod(spec.shape) for spec in specs)


def table_of(frame: pd.DataFrame, first: int, path: Path, options: CsvConfig, specs: list[ArraySpec]) -> Table:
    """Converts the rows of ``frame`` to arrays; its first row is row ``first`` of the file.

    Raises:
        DataError: no rows, another number of columns, or something that is no number of the field's type.
    """
    if frame.empty:
        raise no_rows(path)
    columns = columns_of(specs)
    frame = selected(frame, path, options)
    if frame.shape[1] != columns:
        raise DataError(
            f"{path}: row {first} has {frame.shape[1]} columns, but dataset.fields describe {columns}",
            hint=NOT_THE_FIELDS,
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
                hint=NOT_THE_FIELDS,
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
    return DataError(f"{path}: row {first + row} has {content} in column {column}", hint=NOT_THE_FIELDS)
