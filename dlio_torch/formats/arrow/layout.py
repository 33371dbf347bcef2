"""Layout of Arrow IPC files: extents of cells inside the buffers of record batches.

The metadata of an uncompressed file place each buffer in the file, and pyarrow maps it there: the address of a buffer
minus that of the mapping is its offset.  Cells of buffers that lie elsewhere, because they were decompressed, and
truth values, which share bytes, are kept in memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlio_torch.formats.arrow.reader import ArrowReader
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.cell_rows import joined
from dlio_torch.formats.core.layout import ArrayLayout, Ints, Listed
from dlio_torch.formats.core.layout_in_memory import held, held_rows


def array_layout(reader: ArrowReader, path: Path, spec: ArraySpec, position: int) -> ArrayLayout:
    """The layout of one array of the samples of an open, mapped file.

    Args:
        reader: of the file.
        path: the file.
        spec: the array.
        position: of the array among those that the reader reads.

    Raises:
        DataError: an empty cell, or a length that is not that of the array.
    """
    table = reader.table
    starts: list[Ints] = [np.zeros(0, np.int64)]
    sizes: list[Ints] = [np.zeros(0, np.int64)]
    assert table.mapped is not None
    base, size = table.mapped
    for number, batch in enumerate(table.batches):
        extents = reader.cells(number, position).addresses(batch.num_rows)
        if extents is None:
            return _in_memory(reader, path, spec, position)
        offsets = extents[0] - base
        empty = extents[1] == 0
        if bool(((offsets < 0) | (offsets + extents[1] > size))[~empty].any()):
            return _in_memory(reader, path, spec, position)
        starts.append(np.where(empty, 0, offsets))
        sizes.append(extents[1])
    row = int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize
    return Listed(path, np.concatenate(starts), np.concatenate(sizes), row, variable=spec.variable, limit=size)


def _in_memory(reader: ArrowReader, path: Path, spec: ArraySpec, position: int) -> ArrayLayout:
    parts = [
        reader.cells(number, position).read(0, batch.num_rows) for number, batch in enumerate(reader.table.batches)
    ]
    rows = joined(parts, spec)
    return held(path, rows.rows) if rows.ends is None else held_rows(path, rows.rows, rows.ends)
