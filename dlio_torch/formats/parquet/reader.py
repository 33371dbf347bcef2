"""Reader of Parquet files: reads the footer when it opens a file, then column chunks of row groups on demand.

Only the columns of ``dataset.fields`` are read.  Without threads and read-ahead, which bytes are read, and in which
order, depends on the file alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.core.cell_rows import CellRows, joined
from dlio_torch.formats.core.cells import HINT, Cells, check_column
from dlio_torch.formats.core.layout_in_memory import Held, held, held_rows, held_together
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.core.table_errors import table_errors
from dlio_torch.formats.parquet.footer import column_chunks
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.supervision.crashes import report_truncated_maps

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetReader(Reader):
    """Reader of one Parquet file that keeps the row group which was read last.

    With ``reopen=row_group`` the first row group is read from the file that was opened here, each other one from a file
    that is opened for it.

    Args:
        path: the file.
        specs: arrays of a sample.
        options: how it is read.

    Raises:
        DataError: no Parquet file, or its columns are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: list[ArraySpec], options: ParquetConfig) -> None:
        self._path, self._specs, self._options = path, specs, options
        self._names = [spec.name for spec in specs]
        self._group = -1
        self._columns: dict[str, CellRows] = {}
        if options.memory_map:
            report_truncated_maps()
        self._open()
        try:
            with table_errors(path):
                schema = self._file.schema_arrow
                for spec in specs:
                    _check(path, spec, schema)
                meta = self._file.metadata
                counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        except BaseException:
            self.close()
            raise
        self._ends = np.cumsum([0, *counts])
        self.num_samples = int(self._ends[-1])

    def _open(self) -> None:
        """Open the file, and read its footer."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path, options = self._path, self._options
        with table_errors(path):
            # Opened here, because pyarrow leaves a file that it opened and refused to the collector.
            self._source = pa.memory_map(str(path)) if options.memory_map else pa.OSFile(str(path), "rb")
        try:
            with table_errors(path):
                self._file = pq.ParquetFile(self._source, pre_buffer=options.pre_buffer)
        except BaseException:
            self.close()
            raise

    def describe(self) -> dict[str, Any]:
        """Row groups, codec and the program that wrote the file."""
        meta = self._file.metadata
        details: dict[str, Any] = {"row_groups": meta.num_row_groups, "created_by": meta.created_by}
        if meta.num_row_groups:
            group = meta.row_group(0)
            details["row_group_samples"] = group.num_rows
            details["compression"] = group.column(0).compression
        return details

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        row, end = first, first + count
        while row < end:
            group = int(np.searchsorted(self._ends, row, "right")) - 1
            begin, stop = int(self._ends[group]), min(end, int(self._ends[group + 1]))
            if self._options.read == "single_row":
                self._group = -1
                stop = row + 1
            self._load(group)
            for name, column in self._columns.items():
                column.put(name, row - begin, stop - row, buffer, position + row - first)
            row = stop

    def samples(self) -> Iterator[Sample]:
        """Yields every sample in file order."""
        for columns in self._blocks():
            count = min(column.count for column in columns.values())
            for i in range(count):
                # Copies: one sample that a shuffle pool keeps must not keep the row group.
                yield {name: column.cell(i) for name, column in columns.items()}

    def _blocks(self) -> Iterator[dict[str, CellRows]]:
        """Yields the columns of consecutive row groups, or of batches of ``batch_rows``."""
        options = self._options
        if not options.batch_rows:
            for group in range(len(self._ends) - 1):
                self._load(group)
                yield self._columns
            return
        batches = self._file.iter_batches(
            batch_size=options.batch_rows, columns=self._names, use_threads=options.use_threads
        )
        row = 0
        with table_errors(self._path):
            for batch in batches:
                yield self._rows_of(batch, row)
                row += batch.num_rows

    def held(self) -> dict[str, Held]:
        """Decodes the samples of all row groups into memory; layouts by names of the arrays."""
        parts: dict[str, list[Held]] = {name: [] for name in self._names}
        for group in range(len(self._ends) - 1):
            self._load(group)
            for name, column in self._columns.items():
                piece = (
                    held(self._path, column.rows)
                    if column.ends is None
                    else held_rows(self._path, column.rows, column.ends)
                )
                parts[name].append(piece)
        return {name: held_together(self._path, pieces) for name, pieces in parts.items()}

    @property
    def stored_bytes(self) -> int:
        """Stored bytes of the columns that are read."""
        chunks = column_chunks(self._file.metadata, self._file.schema_arrow.names)
        return sum(chunk.total_compressed_size for name, chunk in chunks if name in self._names)

    def _load(self, group: int) -> None:
        """Read a row group, unless it is the one that was read last."""
        if group == self._group:
            return
        self._group, self._columns = -1, {}  # never two of them in memory
        if self._source.closed:
            self._open()
        with table_errors(self._path):
            table = self._file.read_row_group(group, columns=self._names, use_threads=self._options.use_threads)
            self._columns = self._rows_of(table, int(self._ends[group]))
        self._group = group
        if self._options.reopen == "row_group":
            self._source.close()

    def _rows_of(self, table: pa.Table | pa.RecordBatch, row: int) -> dict[str, CellRows]:
        """Rows of all columns; ``row`` is the first of the table in the file."""
        return {spec.name: rows_of(table.column(spec.name), spec, self._path, row) for spec in self._specs}

    def close(self) -> None:
        self._columns = {}
        self._source.close()


class ParquetTable(Reader):
    """Reader of a file that ``pyarrow.parquet.read_table`` reads whole at the open; see :class:`ParquetReader`."""

    num_samples: int

    def __init__(self, path: Path, specs: list[ArraySpec], options: ParquetConfig) -> None:
        import pyarrow.parquet as pq

        self._path = path
        if options.memory_map:
            report_truncated_maps()
        names = [spec.name for spec in specs]
        with table_errors(path):
            if path.is_dir():  # pyarrow would read all files in it
                raise IsADirectoryError
            try:
                table = pq.read_table(
                    str(path),
                    columns=names,
                    memory_map=options.memory_map,
                    pre_buffer=options.pre_buffer,
                    use_threads=options.use_threads,
                )
            except ValueError:  # pyarrow says "no match" for a missing column
                ParquetReader(path, specs, options).close()
                raise
            for spec in specs:
                _check(path, spec, table.schema)
            self._columns = {spec.name: rows_of(table.column(spec.name), spec, path, 0) for spec in specs}
        self.num_samples = table.num_rows

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        for name, column in self._columns.items():
            column.put(name, first, count, buffer, position)

    def samples(self) -> Iterator[Sample]:
        """Yields every sample in file order."""
        for i in range(self.num_samples):
            yield {name: column.cell(i) for name, column in self._columns.items()}

    def close(self) -> None:
        self._columns = {}


def _check(path: Path, spec: ArraySpec, schema: pa.Schema) -> None:
    """Raise unless the file has a matching column for this array."""
    number = schema.get_field_index(spec.name)
    if number < 0:
        raise DataError(f"{path} has no column {spec.name!r}; its columns are: {', '.join(schema.names)}", hint=HINT)
    field = schema.field(number)
    check_column(path, spec, field.type, field.metadata)


def rows_of(column: pa.ChunkedArray | pa.Array, spec: ArraySpec, path: Path, row: int) -> CellRows:
    """All rows of a column."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        chunks = column.chunks
        if len(chunks) != 1:  # of strings, more than 32-bit offsets can address
            parts = [Cells(chunk, spec, path, row).read(0, len(chunk)) for chunk in chunks]
            return joined(parts, spec)
        column = chunks[0]
    return Cells(column, spec, path, row).read(0, len(column))
