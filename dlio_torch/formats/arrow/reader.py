"""Reader of Arrow IPC files: a sample is a row of a record batch, read as ``ds[i]`` of a Hugging Face data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.arrow.table import ArrowTable
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.core.cells import HINT, Cells, check_column
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.core.table_errors import table_errors


class ArrowReader(Reader):
    """Reader of one open file, whose mapped or decoded batches stay as they are.

    Args:
        path: the file.
        specs: arrays of a sample.
        options: how it is opened; ``None``: without read-ahead, for its metadata.

    Raises:
        DataError: no Arrow file, or its columns are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: list[ArraySpec], options: ArrowConfig | None) -> None:
        self._path, self._specs = path, specs
        self.table = ArrowTable(path, options)
        try:
            with table_errors(path):
                self._numbers = [self._number(spec) for spec in specs]
        except BaseException:
            self.close()
            raise
        self._cells: dict[tuple[int, int], Cells] = {}
        self.num_samples = self.table.num_rows

    def _number(self, spec: ArraySpec) -> int:
        """Number of the column of an array."""
        schema = self.table.schema
        number: int = schema.get_field_index(spec.name)
        if number < 0:
            raise DataError(
                f"{self._path} has no column {spec.name!r}; its columns are: {', '.join(schema.names)}", hint=HINT
            )
        field = schema.field(number)
        check_column(self._path, spec, field.type, field.metadata)
        return number

    def describe(self) -> dict[str, Any]:
        """Record batches of the file."""
        table = self.table
        return {"record_batches": len(table.batches), "batch_rows": int(np.diff(table.starts).max(initial=0))}

    def cells(self, batch: int, position: int) -> Cells:
        """Column of array number ``position`` in a record batch."""
        key = batch, position
        if key not in self._cells:
            column = self.table.batches[batch].column(self._numbers[position])
            spec, first = self._specs[position], int(self.table.starts[batch])
            self._cells[key] = Cells(column, spec, self._path, first)
        return self._cells[key]

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        starts, row, end = self.table.starts, first, first + count
        with table_errors(self._path):
            while row < end:
                batch = int(np.searchsorted(starts, row, "right")) - 1
                begin, stop = int(starts[batch]), min(end, int(starts[batch + 1]))
                for number, spec in enumerate(self._specs):
                    rows = self.cells(batch, number).read(row - begin, stop - row)
                    rows.put(spec.name, 0, stop - row, buffer, position + row - first)
                row = stop

    def samples(self) -> Iterator[Sample]:
        """Yields every sample in file order, record batch after record batch."""
        names = [spec.name for spec in self._specs]
        for batch, table in enumerate(self.table.batches):
            columns = [self.cells(batch, number) for number in range(len(names))]
            for row in range(table.num_rows):
                with table_errors(self._path):
                    sample = {name: cells.read(row, 1).cell(0) for name, cells in zip(names, columns, strict=True)}
                yield sample

    def close(self) -> None:
        self._cells = {}
        self.table.close()
