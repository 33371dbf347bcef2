"""Description of existing text tables: delimiter, names and types of the columns, from the first rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.csv.field_names import field_name

_HEAD_BYTES = 8 << 20
_MOST_ROWS = 1000
_MOST_CELLS = 500_000
_DELIMITERS = ",;\t| "
_MOST_SCALARS = 16
_BIGGEST = 1 << 63
_TRUTH = frozenset(["true", "false"])
_MISSING = frozenset(["", "na", "nan", "n/a", "null", "none", "<na>", "#n/a"])
Rows = list[list[str]]


@dataclass(frozen=True)
class TextColumn:
    """One column of the first rows.

    Attributes:
        name: in the header, or made of its position.
        dtype: ``int64``, ``float64`` or another word.
        problem: why it cannot be read; empty: it can.
    """

    name: str
    dtype: str
    problem: str = ""


def describe(path: Path) -> DataDescription:
    """Describes a text table.

    Raises:
        DataError: it is no text table with a column of numbers.
    """
    text, complete = _head(path)
    delimiter, rows = _table(path, text, complete)
    if len(rows) == 1 and _are_names(rows[0]):
        raise DataError(
            f"{path} holds no rows: its only line names columns", hint="remove the file, or choose another dataset.path"
        )
    names = _header_of(rows)
    questions = _open_questions(rows) if names is None else ()
    body = rows[1:] if names is not None else rows
    columns = [_column(number, names, body) for number in range(len(rows[0]))]
    readable = [number for number, column in enumerate(columns) if not column.problem]
    if not readable:
        reasons = "; ".join(f"{column.name}: {column.problem}" for column in columns[:_MOST_SCALARS])
        raise DataError(f"{path} has no column that can be read: {reasons}", hint="write columns of numbers")
    options: dict[str, Any] = {}
    if names is not None:
        options["header"] = True
    if delimiter != ",":
        options["delimiter"] = delimiter
    if len(readable) < len(columns):
        options["columns"] = readable
    notes = [f"types are those of the first {len(body)} rows; a file does not state them"]
    if '"' in text:
        notes.append("some values are quoted, which is allowed for text and numbers alike")
    return DataDescription(
        fields=tuple(_fields([columns[number] for number in readable])),
        options=options,
        arrays=tuple(_listed(columns)),
        notes=tuple(notes),
        questions=questions,
        details={"columns": len(columns), "header": "yes" if names is not None else "no"},
    )


def _head(path: Path) -> tuple[str, bool]:
    """The first complete lines of a file, and whether they are all lines."""
    with os_errors(path), open(path, "rb") as file:
        content = file.read(_HEAD_BYTES + 1)
    complete = len(content) <= _HEAD_BYTES
    if not complete:
        content = content[: content.rfind(b"\n", 0, _HEAD_BYTES) + 1]
        if not content:
            raise DataError(f"{path}: the first line is longer than {_HEAD_BYTES} bytes", hint="it is no text table")
    if b"\0" in content:
        raise DataError(f"{path} is not a text file: it contains zero bytes", hint="correct dataset.format")
    if not content.strip():
        raise DataError(f"{path} holds no rows", hint="choose another dataset.path")
    try:
        return content.decode("utf-8-sig"), complete
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file in UTF-8 ({error.reason})", hint="convert it to UTF-8") from error


def _table(path: Path, text: str, complete: bool) -> tuple[str, Rows]:
    """The delimiter that gives most columns in equal rows, and the rows."""
    best: tuple[str, Rows] = (",", [])
    for delimiter in _DELIMITERS:
        rows = _parsed(text, delimiter, complete)
        if not rows or len({len(row) for row in rows}) > 1:
            continue
        if len(rows[0]) > (len(best[1][0]) if best[1] else 0):
            best = delimiter, rows
    several = len(best[1][0]) > 1 if best[1] else False
    if not several and any(mark in cell for row in best[1] for cell in row for mark in _DELIMITERS[:-1]):
        best = ",", []
    if not best[1]:
        raise DataError(
            f"{path} holds no table: its rows have different numbers of columns, or there are none",
            hint="write rows of equal length, separated by a comma, semicolon, tabulator, bar or space",
        )
    return best


def _parsed(text: str, delimiter: str, complete: bool) -> Rows:
    """The first rows; empty lines are left out, as pandas does."""
    rows: Rows = []
    cells = 0
    try:
        for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter):
            if not row:
                continue
            rows.append(row)
            cells += len(row)
            if len(rows) > _MOST_ROWS or (cells > _MOST_CELLS and len(rows) > 2):
                return rows
    except csv.Error:
        return []
    return rows if complete or len(rows) < 2 else rows[:-1]  # the last may be cut within quotes


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower() not in _MISSING


def _header_of(rows: Rows) -> list[str] | None:
    """Names of the columns, if the first row holds names."""
    first, body = rows[0], rows[1:]
    if not body:
        return None
    for place, cell in enumerate(first):
        if cell.strip() and not _number(cell) and all(_number(row[place]) for row in body):
            return first
    # DataFrame.to_csv with an index: an empty cell, and the names 0, 1, 2 ... of columns without names.
    if not first[0].strip() and len(first) > 1 and _counts_up(first[1:]):
        return first
    all_text = all(cell.strip() and not _number(cell) for cell in first)
    return first if all_text and any(_number(cell) or _is_truth([cell]) for row in body for cell in row) else None


def _are_names(cells: Sequence[str]) -> bool:
    """Whether a line without any other names columns: it holds words alone, perhaps after an empty cell."""
    named = cells if cells[0].strip() else cells[1:]
    if len(named) < len(cells) and named and _counts_up(named):
        return True
    return bool(named) and not any(_number(cell) or cell.strip().lower() in _MISSING for cell in named)


def _counts_up(cells: Sequence[str]) -> bool:
    return all(cell == str(number) for number, cell in enumerate(cells))


def _open_questions(rows: Rows) -> tuple[OpenQuestion, ...]:
    first = rows[0]
    if len(first) < 2 or not _counts_up(first) or all(row == first for row in rows[1:]):
        return ()
    return (
        OpenQuestion(
            f"the first line counts from 0 to {len(first) - 1}, and the file does not state whether these are the "
            "names of the columns (dataset.csv.header=true) or a row of data (dataset.csv.header=false)",
            "dataset.csv.header=true",
        ),
    )


def _column(number: int, names: Sequence[str] | None, body: Rows) -> TextColumn:
    name = names[number].strip() if names is not None and names[number].strip() else f"column_{number}"
    cells = [row[number].strip() for row in body]
    present = [cell for cell in cells if cell.lower() not in _MISSING]
    if not present:
        return TextColumn(name, "empty", "has no values: not read")
    if not all(map(_number, present)):
        if _is_truth(present):
            return TextColumn(name, "true or false", "holds words, not numbers: not read")
        return TextColumn(name, "text", "text: tensors cannot hold it, not read")
    whole = all(cell.lstrip("+-").isdecimal() and -_BIGGEST <= int(cell) < _BIGGEST for cell in present)
    dtype = "int64" if whole else "float64"
    if len(present) < len(cells):
        return TextColumn(name, dtype, "has rows without a value, which tensors cannot hold: not read")
    return TextColumn(name, dtype)


def _is_truth(cells: Sequence[str]) -> bool:
    return all(cell.lower() in _TRUTH for cell in cells)


def _runs(columns: Sequence[TextColumn]) -> list[list[TextColumn]]:
    """Single columns; of many, neighbours that are alike together."""
    runs: list[list[TextColumn]] = []
    for column in columns:
        last = runs[-1][-1] if runs and len(columns) > _MOST_SCALARS else None
        if last is not None and (last.dtype, last.problem) == (column.dtype, column.problem):
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _listed(columns: Sequence[TextColumn]) -> list[StoredArray]:
    return [
        StoredArray(
            run[0].name if len(run) == 1 else f"{run[0].name} to {run[-1].name}",
            run[0].dtype,
            (len(run),) if len(run) > 1 else None,
            note=run[0].problem,
        )
        for run in _runs(columns)
    ]


def _fields(columns: Sequence[TextColumn]) -> list[FieldConfig]:
    """A field for each column; of many columns, a field for each run of equal types."""
    used: set[str] = set()
    return [
        FieldConfig(field_name(run[0].name, used), run[0].dtype, [])
        if len(run) == 1
        else FieldConfig(field_name("data", used), run[0].dtype, [len(run)])
        for run in _runs(columns)
    ]
