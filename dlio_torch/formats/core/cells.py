"""Cells of one column of an Arrow table, read as NumPy views of pyarrow's memory.

A column is a chain of levels (lists, structs, dictionaries), each of which maps ranges of positions to ranges in the
next, and a leaf that holds the elements.  Only the parts that the requested cells need are touched: of a
memory-mapped file, the same pages as by pyarrow's own access to these cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.cell_types import CONTENT, cell_type, is_list, is_text, is_view
from dlio_torch.formats.core.layout import Ints
from dlio_torch.native.memory import address_of

if TYPE_CHECKING:
    import pyarrow as pa

HINT = "correct dataset.fields"
Ranges = tuple[Ints, Ints]
"""First position and the one behind the last, of each cell."""


@dataclass(frozen=True)
class CellRows:
    """Rows of consecutive cells.

    Attributes:
        rows: of all cells; of a fixed-length array, one a cell.
        ends: of a variable-length array, first row of each cell, and the end of the last one's.
    """

    rows: npt.NDArray[np.generic]
    ends: Ints | None

    def cell(self, number: int) -> npt.NDArray[np.generic]:
        """Copies the rows of one cell."""
        if self.ends is None:
            return np.array(self.rows[number])
        return np.array(self.rows[self.ends[number] : self.ends[number + 1]])

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.rows) if self.ends is None else len(self.ends) - 1

    def put(self, name: str, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Copy ``count`` cells from ``first`` on to a batch, as samples of array ``name`` from ``position`` on."""
        if self.ends is None:
            buffer.fixed[name][position : position + count] = self.rows[first : first + count]
            return
        for i in range(count):
            buffer.put(name, position + i, self.cell(first + i))


def joined(parts: Sequence[CellRows], spec: ArraySpec) -> CellRows:
    """Concatenates the cells of all parts, which may be none."""
    rows = np.concatenate([np.empty((0, *spec.shape), spec.dtype), *(part.rows for part in parts)])
    if not spec.variable:
        return CellRows(rows, None)
    lengths = [np.diff(part.ends) for part in parts if part.ends is not None]
    return CellRows(rows, np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]), dtype=np.int64)]))


@dataclass(frozen=True)
class _Level:
    """One level of a column.

    Attributes:
        nulls: the array, if it has empty cells; a missing dictionary entry counts as one.
        apply: maps ranges to ranges in the next level; ``None``: they stay.
        is_list: whether it is a level of lists.
        length: positions in the next level.
    """

    nulls: pa.Array | None
    apply: Callable[[Ranges], Ranges] | None
    is_list: bool
    length: int


def check_column(path: Path, spec: ArraySpec, kind: pa.DataType, metadata: Any = None) -> None:
    """Raise unless the cells of a column may hold the arrays that ``spec`` describes.

    Raises:
        DataError: they may not.
    """
    import pyarrow as pa

    cells = cell_type(kind, metadata)
    if not cells.fits(spec):
        shown = pa.from_numpy_dtype(spec.dtype)
        expected = f"{shown}{list(spec.shape)}" if spec.shape or spec.variable else f"{shown}"
        reason = f" ({cells.problem})" if cells.problem else ""
        raise DataError(
            f"{path}: column {spec.name!r} is {kind}{reason}, but dataset.fields expect {expected}", hint=HINT
        )


class Cells:
    """Cells of one column in a record batch or row group.

    Args:
        array: the column; of a type that :func:`check_column` accepted.
        spec: array of a sample.
        path: the file, for messages.
        row: number of the first cell in the file, for messages.
    """

    def __init__(self, array: pa.Array, spec: ArraySpec, path: Path, row: int = 0) -> None:
        self._spec, self._path, self._row = spec, path, row
        self._size = math.prod(spec.shape)
        self._inner = spec.shape if spec.variable else spec.shape[1:]
        self._levels: list[_Level] = []
        self._leaf = self._unfold(array)

    def _unfold(self, array: pa.Array) -> npt.NDArray[Any] | _Bits:
        """Records the levels of a column and returns its leaf."""
        import pyarrow as pa

        kind, offset, count = array.type, array.offset, len(array)
        nulls = array if array.null_count else None
        if isinstance(kind, pa.BaseExtensionType):
            return self._unfold(array.storage)
        if pa.types.is_dictionary(kind):
            taken = _view(array.indices)
            self._levels.append(_Level(nulls, lambda ranges: _taken(taken, ranges), False, len(array.dictionary)))
            return self._unfold(array.dictionary)
        if pa.types.is_struct(kind):
            member = array.field(CONTENT)
            self._levels.append(_Level(nulls, None, False, len(member)))
            return self._unfold(member)
        if is_view(kind):
            array = array.cast(pa.large_binary())
            kind, offset = array.type, array.offset
        if is_text(kind) or (is_list(kind) and not pa.types.is_fixed_size_list(kind)):
            ends = first_elements(array)
            content = _octets(array.buffers()[2]) if is_text(kind) else None
            length = len(array.values) if content is None else len(content)
            self._levels.append(_Level(nulls, lambda ranges: _between(ends, ranges), True, length))
            return self._unfold(array.values) if content is None else content
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_fixed_size_list(kind):
            octets = pa.types.is_fixed_size_binary(kind)
            width = kind.byte_width if octets else kind.list_size
            self._levels.append(
                _Level(nulls, lambda ranges: _times(width, offset, ranges), True, (offset + count) * width)
            )
            return _octets(array.buffers()[1]) if octets else self._unfold(array.values)
        self._levels.append(_Level(nulls, None, False, count))
        return _Bits(array) if pa.types.is_boolean(kind) else _view(array)

    def read(self, first: int, count: int) -> CellRows:
        """The rows of ``count`` cells from ``first`` on, as views where the elements lie in one piece.

        Raises:
            DataError: an empty cell, or a length that is not that of the array.
        """
        starts, stops = self.ranges(first, count)
        if count == 0 or bool((starts[1:] == stops[:-1]).all()):
            low, high = (int(starts[0]), int(stops[-1])) if count else (0, 0)
            flat = self._leaf[low:high]
        else:
            pairs = zip(starts.tolist(), stops.tolist(), strict=True)
            flat = np.concatenate([self._leaf[low:high] for low, high in pairs])
        rows = flat.reshape(-1, *self._spec.shape)
        if not self._spec.variable:
            return CellRows(rows, None)
        return CellRows(rows, np.concatenate([[0], np.cumsum((stops - starts) // self._size)]))

    def ranges(self, first: int, count: int) -> Ranges:
        """Elements of each cell, as ranges of the leaf.

        Raises:
            DataError: an empty cell, or a length that is not that of the array.
        """
        starts = np.arange(first, first + count, dtype=np.int64)
        ranges = starts, starts + 1
        depth = 0
        for level in self._levels:
            if level.nulls is not None and count:
                self._refuse_nulls(level.nulls, ranges, first)
            depth += level.is_list
            if level.apply is None:
                continue
            inner = self._inner[depth - 2] if level.is_list and depth > 1 else 0
            ranges = self._uniform(level, ranges, inner) if inner else level.apply(ranges)
            starts, stops = ranges
            if bool(((starts < 0) | (stops < starts) | (stops > level.length)).any()):
                raise DataError(
                    f"{self._path}: the offsets of column {self._spec.name!r} point outside its values",
                    hint="the file is damaged; replace it",
                )
        lengths = ranges[1] - ranges[0]
        if bool((lengths % self._size if self._spec.variable else lengths != self._size).any()):
            raise self._misfit(f"length is not {'a multiple of ' if self._spec.variable else ''}{self._size} elements")
        return ranges

    def _uniform(self, level: _Level, ranges: Ranges, length: int) -> Ranges:
        """Maps ranges of lists, which must all have ``length`` elements, to one range each."""
        assert level.apply is not None
        starts, stops = ranges
        counts = stops - starts
        if not counts.any():
            return starts * 0, stops * 0
        begin = np.cumsum(counts) - counts
        each = np.repeat(starts - begin, counts) + np.arange(int(counts.sum()), dtype=np.int64)
        low, high = level.apply((each, each + 1))
        if bool((high - low != length).any()):
            raise self._misfit(f"inner lists do not have {length} elements each")
        first = low[np.minimum(begin, len(low) - 1)]
        return first, first + counts * length

    def _refuse_nulls(self, array: pa.Array, ranges: Ranges, first: int) -> None:
        low, high = int(ranges[0].min()), int(ranges[1].max())
        if array.slice(low, high - low).null_count:
            raise DataError(
                f"{self._path}: column {self._spec.name!r} has empty cells (from row {self._row + first} on)",
                hint="fill the empty cells, since tensors cannot hold them, or remove the column from dataset.fields",
            )

    def _misfit(self, problem: str) -> DataError:
        return DataError(
            f"{self._path}: column {self._spec.name!r} has cells whose {problem}, as dataset.fields expect", hint=HINT
        )

    def addresses(self, count: int) -> Ranges | None:
        """Address in memory and bytes of the first ``count`` cells; ``None`` where elements are single bits."""
        if isinstance(self._leaf, _Bits):
            return None
        starts, stops = self.ranges(0, count)
        size = self._leaf.dtype.itemsize
        return address_of(self._leaf) + starts * size, (stops - starts) * size


class _Bits:
    """Elements of a column of truth values, eight in a byte."""

    def __init__(self, array: pa.Array) -> None:
        self._octets = _octets(array.buffers()[1])
        self._offset = array.offset

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        low, high = self._offset + part.start, self._offset + part.stop
        bits = np.unpackbits(self._octets[low // 8 : -(-high // 8)], bitorder="little")
        return bits[low % 8 : low % 8 + high - low].view(np.bool_)


def _octets(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.empty(0, np.uint8) if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)


def _view(array: pa.Array) -> npt.NDArray[Any]:
    """The elements of a column of numbers."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array))[array.offset :]


def first_elements(array: pa.Array) -> npt.NDArray[Any]:
    """First element of each list, string or binary cell, and the end of the last one's."""
    import pyarrow as pa

    types, kind = pa.types, array.type
    large = types.is_large_list(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    dtype = np.dtype(np.int64 if large else np.int32)
    if not len(array):
        return np.zeros(1, dtype)
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array) + 1)[array.offset :]


def _between(ends: npt.NDArray[Any], ranges: Ranges) -> Ranges:
    """Maps ranges of lists to ranges of their elements."""
    starts, stops = ranges
    return ends[starts].astype(np.int64), ends[stops].astype(np.int64)


def _times(width: int, offset: int, ranges: Ranges) -> Ranges:
    """Maps ranges of lists of ``width`` elements to ranges of their elements."""
    starts, stops = ranges
    return (starts + offset) * width, (stops + offset) * width


def _taken(positions: npt.NDArray[Any], ranges: Ranges) -> Ranges:
    """Maps single cells to entries of their dictionary."""
    starts = positions[ranges[0]].astype(np.int64)
    return starts, starts + 1
