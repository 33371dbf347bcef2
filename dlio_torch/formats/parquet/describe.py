"""Description of Parquet files from their footer, and of columns of variable length from their first rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.formats.core.cell_types import cell_type
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
from dlio_torch.formats.parquet.footer import column_chunks

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_ROWS = 256
"""Rows that are read to learn the mean length of the cells of a column."""

_BUFFER_BYTES = 64 << 10  # of a read call: only the first pages of a column chunk are read

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


@dataclass
class _Stored:
    """Figures of one column, of all its leaves and row groups.

    Attributes:
        bytes: compressed.
        codecs: names of the codecs.
        nulls: empty values; ``None``: a row group does not state them.
    """

    bytes: int = 0
    codecs: set[str] = field(default_factory=set)
    nulls: int | None = 0


def describe(path: Path) -> DataDescription:
    """Describes one file.

    Raises:
        DataError: no Parquet file, or a damaged one.
        MissingPackageError: pyarrow is not installed.
    """
    need_pyarrow("parquet", "pyarrow.parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with table_errors(path), closing(pa.OSFile(str(path), "rb")) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        meta, schema = file.metadata, file.schema_arrow
        stored = _stored(meta, schema.names)
        names = [name for name in schema.names[:MOST] if cell_type(schema.field(name).type).sizes]
        first = _first_rows(file, [name for name in names if name in stored])
        columns = [_column(item, meta, stored.get(item.name, _Stored()), first) for item in list(schema)[:MOST]]
    fields, arrays = describe_columns(columns, _index_columns(schema.names))
    groups = meta.num_row_groups
    rows = max((meta.row_group(number).num_rows for number in range(groups)), default=0)
    notes = unlisted(len(schema))
    if any(entry.length_mean for entry in fields):
        notes.append(f"length_mean of columns of variable length is the mean of the first {FIRST_ROWS} rows")
    if groups > 1:
        notes.append(
            f"to read one sample is to read and decode its row group of {rows} rows: access.order=sequential, or "
            "access=stream, reads each row group once"
        )
    details = {"row_groups": groups, "row_group_samples": rows, "written_by": meta.created_by}
    return DataDescription(fields, {}, meta.num_rows, arrays, tuple(notes), details=details)


def _column(item: pa.Field, meta: Any, stored: _Stored, first: Mapping[str, pa.Array]) -> TableColumn:
    groups = [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
    column = first.get(item.name)
    nulls, mean = stored.nulls, None
    if column is not None:
        elements, cells = cell_lengths(column)
        mean = elements / cells if cells else None
        if column.type.num_fields or nulls is None:  # statistics of nested columns count empty lists as well
            nulls = empty_cells(column)
    return TableColumn(
        item.name,
        item.type,
        meta.num_rows,
        item.metadata,
        nulls,
        mean,
        column is None or has_content(column),
        max(groups, default=0),
        ", ".join(sorted(stored.codecs - {"uncompressed"})),
        stored.bytes,
    )


def _stored(meta: Any, names: Sequence[str]) -> dict[str, _Stored]:
    """Figures of each column of the table, by name."""
    columns: dict[str, _Stored] = {}
    for name, chunk in column_chunks(meta, names):
        figures = columns.setdefault(name, _Stored())
        figures.bytes += chunk.total_compressed_size
        figures.codecs.add(chunk.compression.lower())
        stated = chunk.statistics is not None and chunk.statistics.has_null_count
        if figures.nulls is not None:
            figures.nulls = figures.nulls + chunk.statistics.null_count if stated else None
    return columns


def _first_rows(file: Any, names: list[str]) -> dict[str, pa.Array]:
    """First rows of the named columns."""
    if not names:
        return {}
    batches = file.iter_batches(batch_size=FIRST_ROWS, row_groups=[0], columns=names, use_threads=False)
    batch = next(batches, None)
    return {} if batch is None else {name: batch.column(name) for name in batch.schema.names}


def _index_columns(names: Sequence[str]) -> dict[str, str]:
    """Columns in which pandas keeps an index without a name, with a note on them."""
    return {name: "the index of the data frame" for name in names if _UNNAMED_INDEX.fullmatch(name)}
