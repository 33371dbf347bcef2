"""Reader of Parquet files: reads the footer when it opens a file, then column chunks of row groups on demand.

pyarrow's read-ahead and threads are off: which bytes are read, and in which order, depends on the file alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.layout_in_memory import Held, held, held_rows, held_together
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range

if TYPE_CHECKING:
    import pyarrow as pa

_HINT = "correct dataset.fields"


@dataclass(frozen=True)
class _GroupColumn:
    """One column of a row group, as a view of pyarrow's decoded memory.

    Attributes:
        rows: rows of all samples; of a fixed-length array, one a sample.
        ends: of a variable-length array, where each sample's rows begin, and the end of the last one's.
    """

    rows: npt.NDArray[np.generic]
    ends: npt.NDArray[np.int64] | None


class ParquetReader(Reader):
    """Reader of one Parquet file that keeps the row group which was read last.

    Args:
        path: the file.
        specs: arrays of a sample.

    Raises:
        DataError: no Parquet file, or its columns are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: list[ArraySpec]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path
        self._specs = specs
        self._group = -1
        self._columns: dict[str, _GroupColumn] = {}
        with _reading(path):
            # Opened here, because pyarrow leaves a file that it opened and refused to the collector.
            self._source = pa.OSFile(str(path), "rb")
        try:
            with _reading(path):
                # Not kept in memory as a whole, not read ahead: one read for each column chunk.
                self._file = pq.ParquetFile(self._source, memory_map=False, pre_buffer=False)
                for spec in specs:
                    self._check(spec)
                meta = self._file.metadata
                counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        except BaseException:
            self.close()
            raise
        self._ends = np.cumsum([0, *counts])
        self.num_samples = int(self._ends[-1])

    def _check(self, spec: ArraySpec) -> None:
        """Raise unless the file has a matching column for this array."""
        import pyarrow as pa

        schema = self._file.schema_arrow
        number = schema.get_field_index(spec.name)
        if number < 0:
            raise DataError(
                f"{self._path} has no column {spec.name!r}; its columns are: {', '.join(schema.names)}", hint=_HINT
            )
        column_type = schema.field(number).type
        wanted = pa.from_numpy_dtype(spec.dtype)
        sized, listed = spec.shape or spec.variable, _is_list(column_type)
        if _is_binary(column_type):
            fits = bool(sized) and spec.dtype == np.uint8
        else:
            fits = bool(sized) == listed and (column_type.value_type if listed else column_type) == wanted
        if not fits:
            raise DataError(
                f"{self._path}: column {spec.name!r} is {column_type}, but dataset.fields expect {wanted}"
                + (f"{list(spec.shape)}" if sized else ""),
                hint=_HINT,
            )

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
            self._load(group)
            for spec in self._specs:
                column, place = self._columns[spec.name], position + row - first
                if column.ends is None:
                    buffer.fixed[spec.name][place : place + stop - row] = column.rows[row - begin : stop - begin]
                    continue
                for i in range(row - begin, stop - begin):
                    buffer.put(spec.name, place + i - (row - begin), _piece(column, i))
            row = stop

    def samples(self) -> Iterator[Sample]:
        """Yields every sample in file order."""
        for group in range(len(self._ends) - 1):
            self._load(group)
            columns = self._columns
            for i in range(int(self._ends[group + 1] - self._ends[group])):
                # Copies: one sample that a shuffle pool keeps must not keep the row group.
                yield {name: _piece(column, i) for name, column in columns.items()}

    def held(self) -> dict[str, Held]:
        """Decodes the samples of all row groups into memory; layouts by names of the arrays."""
        parts: dict[str, list[Held]] = {spec.name: [] for spec in self._specs}
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
        meta, names = self._file.metadata, {spec.name for spec in self._specs}
        total = 0
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema in names or column.path_in_schema.partition(".")[0] in names:
                    total += column.total_compressed_size
        return total

    def _load(self, group: int) -> None:
        """Read a row group, unless it is the one that was read last."""
        if group == self._group:
            return
        self._group, self._columns = -1, {}  # never two of them in memory
        with _reading(self._path):
            names = [spec.name for spec in self._specs]
            table = self._file.read_row_group(group, columns=names, use_threads=False)
            for spec in self._specs:
                self._columns[spec.name] = self._column(spec, table.column(spec.name).combine_chunks())
        self._group = group

    def _column(self, spec: ArraySpec, array: pa.Array) -> _GroupColumn:
        import pyarrow as pa

        if array.null_count:
            raise DataError(
                f"{self._path}: column {spec.name!r} has empty cells",
                hint="fill the empty cells, since tensors cannot hold them",
            )
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        kind, size = array.type, math.prod(spec.shape)
        ends: npt.NDArray[np.int64] | None = None
        flat: npt.NDArray[Any]
        if pa.types.is_fixed_size_binary(kind):
            flat = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * kind.byte_width :]
            flat, lengths = flat[: len(array) * kind.byte_width], kind.byte_width
        elif pa.types.is_fixed_size_list(kind):
            flat, lengths = array.flatten().to_numpy(zero_copy_only=False), kind.list_size
        elif _is_list(kind) or _is_binary(kind):
            ends = _offsets(array)
            flat = _elements(array)[ends[0] : ends[-1]]
            ends = ends - ends[0]
            lengths = np.diff(ends)
        else:
            flat, lengths = array.to_numpy(zero_copy_only=False), 1
        wrong = np.any(lengths % size) if spec.variable else np.any(lengths != size)
        if wrong:
            raise DataError(
                f"{self._path}: column {spec.name!r} has cells whose length is not "
                f"{'a multiple of ' if spec.variable else ''}{size} elements, as dataset.fields expect",
                hint=_HINT,
            )
        if not spec.variable:
            ends = None
        elif ends is None:
            ends = np.arange(len(array) + 1) * lengths
        return _GroupColumn(flat.reshape(-1, *spec.shape), None if ends is None else ends // size)

    def close(self) -> None:
        self._columns = {}
        self._source.close()


def _piece(column: _GroupColumn, number: int) -> npt.NDArray[np.generic]:
    """Copies the rows of one sample."""
    if column.ends is None:
        return np.array(column.rows[number])
    return np.array(column.rows[column.ends[number] : column.ends[number + 1]])


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """First element of each cell of a list or binary column, and the end of the last cell."""
    import pyarrow as pa

    large = pa.types.is_large_list(array.type) or pa.types.is_large_binary(array.type)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _elements(array: pa.Array) -> npt.NDArray[np.generic]:
    """The elements that the offsets of :func:`_offsets` refer to."""
    if not _is_binary(array.type):
        values: npt.NDArray[np.generic] = array.values.to_numpy(zero_copy_only=False)
        return values
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into one-line errors that name the file."""
    import pyarrow as pa

    try:
        yield
    except DlioError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, NotImplementedError) as error:
        raise open_error(path, error) from error
