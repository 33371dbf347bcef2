"""Description of Arrow IPC files and of the folders that ``datasets`` writes, from schemas and metadata."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.errors import DataError
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.arrow.saved_folder import STATE, data_files, read_json
from dlio_torch.formats.arrow.table import ArrowTable
from dlio_torch.formats.core.column_description import (
    TableColumn,
    cell_lengths,
    describe_columns,
    empty_cells,
    has_content,
    unlisted,
)
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.table_errors import need_pyarrow, table_errors

if TYPE_CHECKING:
    import pyarrow as pa

_INDICES = "indices"


@dataclass
class _Totals:
    """Figures of all files of a data set.

    Attributes:
        rows: their number.
        batches: number of record batches.
        nulls: empty cells of each column.
        bytes: of the buffers of each column.
    """

    rows: int = 0
    batches: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, table: ArrowTable) -> None:
        """Adds the figures of a file."""
        self.rows += table.num_rows
        self.batches += len(table.batches)
        for batch in table.batches:
            for name, column in zip(table.schema.names[:MOST], batch.columns, strict=False):
                self.nulls[name] += empty_cells(column)
                self.bytes[name] += column.get_total_buffer_size()


def describe(path: Path) -> DataDescription:
    """Describes one file or a saved data set, whose columns are those of its first file.

    Raises:
        DataError: it cannot be read, or holds several data sets.
        MissingPackageError: pyarrow is not installed.
    """
    need_pyarrow("arrow", "pyarrow.ipc")
    files, shown = [path], None
    if path.is_dir():
        names = sorted(name for name in os.listdir(path) if name.endswith(".arrow"))
        files = [path / name for name in data_files(path, names)]
        if not files:
            raise DataError(f"{path} holds no data file", hint="give the path of a folder that save_to_disk wrote")
        shown = read_json(path / STATE).get("_format_columns")
    totals = _Totals()
    for file in files[1:]:
        with table_errors(file), closing(ArrowTable(file)) as table:
            totals.add(table)
    with table_errors(files[0]), closing(ArrowTable(files[0])) as table:
        totals.add(table)
        return _described(files[0], table, totals, shown if isinstance(shown, list) else ())


def _described(path: Path, table: ArrowTable, totals: _Totals, shown: Sequence[Any]) -> DataDescription:
    """Describes a data set.

    Args:
        path: its first file.
        table: the same, open.
        totals: figures of all files.
        shown: columns that ``ds[i]`` returns; empty: all.
    """
    schema, batches = table.schema, table.batches
    if schema.names == [_INDICES] and str(schema.field(0).type) == "uint64":
        raise DataError(
            f"{path} is an indices mapping: numbers of rows of another file, not samples",
            hint="save the data set by save_to_disk, which stores its rows in the new order",
        )
    columns = [_column(table, number, totals) for number in range(min(len(schema), MOST))]
    notes = unlisted(len(schema))
    if any(column.mean is not None for column in columns):
        notes.append("length_mean of columns of variable length is the mean of the first record batch")
    if any(_outside(table, batch) for batch in batches[:1]):
        notes.append("the buffers are compressed: a file is decoded into memory when it is opened")
    if shown:
        notes.append(f"the data set is formatted to the columns {', '.join(map(str, shown))}")
    hidden = [name for name in schema.names if shown and name not in shown]
    left_out = dict.fromkeys(hidden, "not among the columns of the data set's format")
    options = {} if table.container == ArrowConfig.ipc else {"ipc": table.container}
    fields, arrays = describe_columns(columns, left_out)
    details = {"record_batches": totals.batches, "batch_rows": batches[0].num_rows if batches else 0}
    return DataDescription(fields, options, totals.rows, arrays, tuple(notes), details=details)


def _column(table: ArrowTable, number: int, totals: _Totals) -> TableColumn:
    entry = table.schema.field(number)
    first = table.batches[0].column(number) if table.batches else None
    elements, cells = (0, 0) if first is None else cell_lengths(first)
    return TableColumn(
        entry.name,
        entry.type,
        totals.rows,
        entry.metadata,
        totals.nulls[entry.name],
        elements / cells if cells else None,
        first is None or has_content(first),
        0 if first is None else len(first),
        stored_bytes=totals.bytes[entry.name],
    )


def _outside(table: ArrowTable, batch: pa.RecordBatch) -> bool:
    """Whether a buffer of the batch lies outside the mapped file."""
    base, size = table.mapped or (0, 0)
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return any(not base <= buffer.address < base + size for buffer in buffers)
