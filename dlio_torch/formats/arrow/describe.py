"""Description of Arrow IPC files and of the folders that ``datasets`` writes, from schemas and metadata."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
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
from dlio_torch.formats.core.table_errors import table_errors

if TYPE_CHECKING:
    import pyarrow as pa

_INDICES = "indices"


def describe(path: Path) -> DataDescription:
    """Describes one file, or a saved data set by its first file.

    Raises:
        DataError: it cannot be read, or holds several data sets.
    """
    if not path.is_dir():
        with table_errors(path):
            return _described(path, (), {})
    names = sorted(name for name in os.listdir(path) if name.endswith(".arrow"))
    files = data_files(path, names)
    if not files:
        raise DataError(f"{path} holds no data file", hint="give the path of a folder that save_to_disk wrote")
    columns = read_json(path / STATE).get("_format_columns")
    nulls: Counter[str] = Counter()
    for name in files[1:]:
        with table_errors(path / name), closing(ArrowTable(path / name)) as table:
            for batch in table.batches:
                nulls.update({column: empty_cells(batch.column(column)) for column in set(table.schema.names)})
    with table_errors(path / files[0]):
        return _described(path / files[0], columns if isinstance(columns, list) else (), nulls)


def _described(path: Path, shown: Sequence[Any], nulls: Mapping[str, int]) -> DataDescription:
    """Describes one file.

    Args:
        path: the file.
        shown: columns that ``ds[i]`` returns; empty: all.
        nulls: empty cells of each column in other files of the data set.
    """
    table = ArrowTable(path)
    try:
        schema, batches = table.schema, table.batches
        if schema.names == [_INDICES] and str(schema.field(0).type) == "uint64":
            raise DataError(
                f"{path} is an indices mapping: numbers of rows of another file, not samples",
                hint="save the data set by save_to_disk, which stores its rows in the new order",
            )
        columns = [_column(table, number, nulls) for number in range(min(len(schema), MOST))]
        notes = unlisted(len(schema))
        if any(column.mean is not None for column in columns):
            notes.append("length_mean of columns of variable length is the mean of the first record batch")
        if table.mapped and any(_outside(table, batch) for batch in batches[:1]):
            notes.append("the buffers are compressed: a file is decoded into memory when it is opened")
        if shown:
            notes.append(f"the data set is formatted to the columns {', '.join(map(str, shown))}")
        left_out = (
            {}
            if not shown
            else {name: "not among the columns of the data set's format" for name in schema.names if name not in shown}
        )
        options = {} if table.container == ArrowConfig.ipc else {"ipc": table.container}
        fields, arrays = describe_columns(columns, left_out)
        details = {"record_batches": len(batches), "batch_rows": batches[0].num_rows if batches else 0}
        return DataDescription(fields, options, table.num_rows, arrays, tuple(notes), details=details)
    finally:
        table.close()


def _column(table: ArrowTable, number: int, nulls: Mapping[str, int]) -> TableColumn:
    field = table.schema.field(number)
    parts = [batch.column(number) for batch in table.batches]
    elements, cells = cell_lengths(parts[0]) if parts else (0, 0)
    return TableColumn(
        field.name,
        field.type,
        table.num_rows,
        field.metadata,
        sum(map(empty_cells, parts)) + nulls.get(field.name, 0),
        elements / cells if cells else None,
        not parts or has_content(parts[0]),
        len(parts[0]) if parts else 0,
        stored_bytes=sum(part.get_total_buffer_size() for part in parts),
    )


def _outside(table: ArrowTable, batch: pa.RecordBatch) -> bool:
    """Whether a buffer of the batch lies outside the mapped file."""
    base, size = table.mapped or (0, 0)
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return any(not base <= buffer.address < base + size for buffer in buffers)
