"""Cells of one column of an Arrow table, read as NumPy views of pyarrow's memory.

A column is a chain of levels (lists, structs, dictionaries), each of which maps ranges of positions to ranges in the
next, and a leaf that holds the elements.  Only the parts that the requested cells need are touched: of a
memory-mapped file, the same pages as by pyarrow's own access to these cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.cell_rows import CellRows
from dlio_torch.formats.core.cell_types import CONTENT, cell_type, is_list, is_text, is_view
from dlio_torch.formats.core.column_views import BitView, first_elements, number_view, octets_of
from dlio_torch.formats.core.layout import Ints
from dlio_torch.native.memory import address_of

if TYPE_CHECKING:
    import pyarrow as pa

HINT = "correct dataset.fields"
Ranges = tuple[Ints, Ints]
"""First position and the one behind the last, of each cell."""


@dataclass(frozen=True)
class _Level:
    """One level of a column.

    Attributes:
        nulls: the array, if it has empty cells; a missing dictionary entry counts as one.
        apply: maps ranges, or a range of two integers, to those in the next level; ``None``: they stay.
        is_list: whether it is a level of lists.
        length: positions in the next level.
    """

    nulls: pa.Array | None
    apply: Callable[[Any], Any] | None
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
        self._levels: list[_Level] = []
        self._leaf = self._unfold(array)
        inner = [0, *(spec.shape if spec.variable else spec.shape[1:])]  # length of the lists of each level; 0: any
        depths = np.cumsum([level.is_list for level in self._levels])
        self._checked = [
            (level, inner[depth - 1] if level.is_list else 0)
            for level, depth in zip(self._levels, depths.tolist(), strict=True)
        ]

    def _unfold(self, array: pa.Array) -> npt.NDArray[Any] | BitView:
        """Records the levels of a column and returns its leaf."""
        import pyarrow as pa

        kind, offset, count = array.type, array.offset, len(array)
        nulls = array if array.null_count else None
        if isinstance(kind, pa.BaseExtensionType):
            return self._unfold(array.storage)
        if pa.types.is_dictionary(kind):
            taken = number_view(array.indices)
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
            content = octets_of(array.buffers()[2]) if is_text(kind) else None
            length = len(array.values) if content is None else len(content)
            self._levels.append(_Level(nulls, lambda ranges: _between(ends, ranges), True, length))
            return self._unfold(array.values) if content is None else content
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_fixed_size_list(kind):
            content = octets_of(array.buffers()[1]) if pa.types.is_fixed_size_binary(kind) else None
            width = kind.list_size if content is None else kind.byte_width
            length = len(array.values) if content is None else len(content)
            self._levels.append(_Level(nulls, lambda ranges: _times(width, offset, ranges), True, length))
            return self._unfold(array.values) if content is None else content
        self._levels.append(_Level(nulls, None, False, count))
        return BitView(array) if pa.types.is_boolean(kind) else number_view(array)

    def read(self, first: int, count: int) -> CellRows:
        """The rows of ``count`` cells from ``first`` on, as views where the elements lie in one piece.

        Raises:
            DataError: an empty cell, or a length that is not that of the array.
        """
        if count == 1:
            low, high = self._range(first)
            rows = self._leaf[low:high].reshape(-1, *self._spec.shape)
            return CellRows(rows, np.array((0, len(rows)), np.int64) if self._spec.variable else None)
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
        for level, inner in self._checked:
            if level.nulls is not None and count:
                self._refuse_nulls(level.nulls, int(ranges[0].min()), int(ranges[1].max()), first)
            if level.apply is None:
                continue
            ranges = self._uniform(level, ranges, inner) if inner else level.apply(ranges)
            starts, stops = ranges
            if bool(((starts < 0) | (stops < starts) | (stops > level.length)).any()):
                raise self._outside()
        self._check_lengths(ranges[1] - ranges[0])
        return ranges

    def _range(self, row: int) -> tuple[int, int]:
        """Elements of one cell, as :meth:`ranges`; in a fifth of the time."""
        low, high = row, row + 1
        for level, inner in self._checked:
            if level.nulls is not None:
                self._refuse_nulls(level.nulls, low, high, row)
            if level.apply is None:
                continue
            if inner:
                starts, stops = self._uniform(level, (np.array([low]), np.array([high])), inner)
                low, high = int(starts[0]), int(stops[0])
            else:
                low, high = map(int, level.apply((low, high)))
            if not 0 <= low <= high <= level.length:
                raise self._outside()
        length = high - low
        if length % self._size if self._spec.variable else length != self._size:
            self._check_lengths(np.array([length]))
        return low, high

    def _check_lengths(self, lengths: Ints) -> None:
        wrong = lengths % self._size if self._spec.variable else lengths != self._size
        if bool(wrong.any()):
            raise self._misfit(f"length is not {'a multiple of ' if self._spec.variable else ''}{self._size} elements")

    def _outside(self) -> DataError:
        return DataError(
            f"{self._path}: the offsets of column {self._spec.name!r} point outside its values",
            hint="the file is damaged; replace it",
        )

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

    def _refuse_nulls(self, array: pa.Array, low: int, high: int, first: int) -> None:
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
        if isinstance(self._leaf, BitView):
            return None
        starts, stops = self.ranges(0, count)
        size = self._leaf.dtype.itemsize
        return address_of(self._leaf) + starts * size, (stops - starts) * size


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
