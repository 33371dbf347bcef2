"""Layout of a BP folder, read from its index without ADIOS2, which does not check for damage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.adios2.block import Block
from dlio_torch.formats.adios2.folder import check_complete
from dlio_torch.formats.adios2.index import OTHER_WAY, read_blocks
from dlio_torch.formats.adios2.layout_segments import Segmented
from dlio_torch.formats.adios2.reader import stored_type
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Ints
from dlio_torch.formats.core.layout_rows import RowExtents
from dlio_torch.formats.core.positioned_reads import read_exactly
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.formats.core.stacking import agreed

_EXTENT = np.dtype(np.int64)


@dataclass(frozen=True)
class _Rows:
    """Rows of one variable and the bytes where they lie.

    Attributes:
        path: the data file.
        size: bytes of a row.
        steps: rows of each step.
        rows: rows of each extent.
        offsets: first byte of each extent.
    """

    path: Path
    size: int
    steps: list[int]
    rows: list[int]
    offsets: list[int]


def folder_layout(folder: Path, specs: Sequence[ArraySpec]) -> FileLayout:
    """The layout of a BP folder.

    Args:
        folder: of BP4 or BP5.
        specs: arrays of a sample.

    Raises:
        DataError: missing, incomplete or damaged, other variables than ``specs`` say, or an index that only the
            library understands.
    """
    check_complete(folder)
    tables = {spec.name: spec.name + EXTENTS_SUFFIX for spec in specs if spec.variable}
    blocks = read_blocks(folder, [*(spec.name for spec in specs), *tables.values()])
    arrays = {spec.name: _rows(folder, spec.name, blocks, stored_type(spec.dtype), spec.shape) for spec in specs}
    extents = {name: _rows(folder, table, blocks, _EXTENT, (2,)) for name, table in tables.items()}
    samples = {name: extents.get(name, array).steps for name, array in arrays.items()}
    count = agreed({name: sum(steps) for name, steps in samples.items()}, folder)
    if len({tuple(steps) for steps in samples.values()}) > 1:
        raise DataError(
            f"{folder}: the arrays of dataset.fields differ in the number of samples per step",
            hint="correct dataset.fields",
        )
    layouts: dict[str, ArrayLayout] = {}
    for name, array in arrays.items():
        known = _extents(folder, name, array, extents[name]) if name in extents else None
        layouts[name] = Segmented(array.path, name, array.offsets, array.rows, array.size, known)
    return FileLayout(count, layouts)


def _rows(
    folder: Path,
    name: str,
    blocks_by_name: dict[str, list[list[Block]]],
    dtype: np.dtype[np.generic],
    row_shape: tuple[int, ...],
) -> _Rows:
    """The rows of all steps of a variable, one after another."""
    if not blocks_by_name[name]:
        raise DataError(f"{folder} has no global array named {name!r}", hint="correct dataset.fields")
    steps, rows, offsets = [], [], []
    size = math.prod(row_shape) * dtype.itemsize
    wanted = f"{dtype}[{', '.join(['n', *map(str, row_shape)])}]"
    for blocks in blocks_by_name[name]:
        shapes = {(block.kind, block.shape) for block in blocks}
        kind, shape = min(shapes, default=("nothing", (0,)))
        if len(shapes) != 1 or kind != dtype.name or shape[1:] != row_shape:
            raise DataError(
                f"{folder}: variable {name} is {kind}{list(shape)}, but dataset.fields expect {wanted}",
                hint="correct dataset.fields",
            )
        row = 0
        for block in sorted(blocks, key=lambda other: other.start[0]):
            if block.count[1:] != row_shape or any(block.start[1:]) or block.start[0] != row:
                raise DataError(
                    f"{folder}: the blocks of variable {name} overlap, leave gaps or are split along an axis other "
                    "than the first",
                    hint=OTHER_WAY,
                )
            rows.append(block.count[0])
            offsets.append(block.offset)
            row += block.count[0]
        if row != shape[0]:
            raise DataError(
                f"{folder}: a step holds only {row} of the {shape[0]} rows of variable {name}", hint=OTHER_WAY
            )
        steps.append(row)
    files = {block.file for blocks in blocks_by_name[name] for block in blocks}
    if len(files) > 1:
        raise DataError(
            f"{folder}: the data of variable {name} lie in {len(files)} files; the decoupled engine reads variables "
            "in one file",
            hint=OTHER_WAY,
        )
    path = folder / f"data.{files.pop()}"
    with os_errors(path):
        length = path.stat().st_size
    if any(offset > length or count > (length - offset) // size for offset, count in zip(offsets, rows, strict=True)):
        raise DataError(
            f"{path} has {length} bytes, which is too few for variable {name}",
            hint="generate or fetch the folder again",
        )
    return _Rows(path, size, steps, rows, offsets)


def _read(array: _Rows) -> npt.NDArray[np.int64]:
    """Reads all rows of a small table; shape ``(rows, 2)``."""
    parts = []
    with os_errors(array.path), array.path.open("rb") as file:
        for offset, count in zip(array.offsets, array.rows, strict=True):
            parts.append(read_exactly(file.fileno(), offset, count * array.size))
    content = b"".join(parts)
    if len(content) != sum(array.rows) * array.size:
        raise DataError(
            f"{array.path} became shorter while a table of extents was read", hint="generate or fetch the folder again"
        )
    return np.frombuffer(content, _EXTENT).reshape(-1, 2)


def _extents(folder: Path, name: str, array: _Rows, table: _Rows) -> RowExtents:
    """First row (counted over all steps) and number of rows of each sample; -1 rows mark extents beyond their step."""
    if len(array.steps) != len(table.steps):
        raise DataError(
            f"{folder}: variable {name} has {len(array.steps)} steps, but its table of extents has {len(table.steps)}",
            hint="the folder is inconsistent; generate or fetch the folder again",
        )
    extents = _read(table)
    first, count = extents[:, 0], extents[:, 1]
    rows: Ints = np.repeat(np.array(array.steps, np.int64), table.steps)
    begin = np.repeat(np.cumsum([0, *array.steps])[:-1], table.steps)
    sound = (first >= 0) & (count >= 0) & (count <= rows) & (first <= rows - count)
    return np.where(sound, first + begin, 0), np.where(sound, count, -1)
